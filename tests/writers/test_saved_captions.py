"""Captions read back from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.writers.saved_captions import SavedCaption, read_saved


def read(tmp_path: Path, text: str) -> dict[str, list[SavedCaption]]:
    (tmp_path / "saved").write_text(text, encoding="utf-8")
    return read_saved(tmp_path / "saved")


def saved(tmp_path: Path, text: str) -> dict[str, list[str]]:
    return {name: [one.text for one in captions] for name, captions in read(tmp_path, text).items()}


def test_the_sentence_comes_before_the_plain_caption(tmp_path: Path):
    lines = '{"image": "a.jpg", "caption": "a dog", "sentence": "A dög."}\n\n{"image": "b.jpg", "caption": "a cat"}\n'
    assert saved(tmp_path, lines) == {"a.jpg": ["A dög."], "b.jpg": ["a cat"]}


def test_a_csv_file_may_have_several_captions_of_an_image(tmp_path: Path):
    rows = '\ufeffimage,rank,sentence\n"a, b.jpg",1,A dog.\n"a, b.jpg",2,"A ""big"" dog."\nc.jpg,1,\n'
    assert saved(tmp_path, rows) == {"a, b.jpg": ["A dog.", 'A "big" dog.']}


def test_a_caption_has_its_confidence_until_a_person_has_reviewed_it(tmp_path: Path):
    lines = [
        '{"image": "a", "sentence": "A dog.", "confidence": 0.25, "approved": false, "edited": false}',
        '{"image": "b", "sentence": "A dog.", "confidence": 0.25, "approved": true, "edited": false}',
        '{"image": "c", "sentence": "Rex.", "confidence": 0.25, "approved": false, "edited": true}',
        '{"image": "d", "sentence": "A dog.", "confidence": null}',
    ]
    captions = read(tmp_path, "\n".join(lines))
    assert {name: one.confidence for name, (one,) in captions.items()} == {"a": 0.25, "b": None, "c": None, "d": None}
    table = (
        "image,sentence,confidence,approved,edited\na,A dog.,0.25,false,false\nb,Rex.,0.25,false,true\nc,A cat.,,,\n"
    )
    captions = read(tmp_path, table)
    assert {name: one.confidence for name, (one,) in captions.items()} == {"a": 0.25, "b": None, "c": None}


@pytest.mark.parametrize("text", ["", "{}\n", "{broken\n", "a,b\n1,2\n", '{"image": "a.jpg"}\n', "[1, 2]\n"])
def test_another_file_is_refused_with_a_sentence(tmp_path: Path, text: str):
    with pytest.raises(UsageError, match="--from"):
        saved(tmp_path, text)
