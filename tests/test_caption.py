"""Caption: compared, hashed, printed, turned into JSON and shown in a notebook."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner import Caption, Word
from captioner.images.frame import Frame
from captioner.images.reading import Picture


def word(text: str, seed: int = 0, **changes: Any) -> Word:
    alpha = np.random.default_rng(seed).random((2, 3)).astype(np.float32)
    return replace(Word(text, -0.5, alpha / alpha.sum(), gate=0.25), **changes)


def caption(*texts: str) -> Caption:
    picture = Picture("photo.jpg", Frame(60, 40), image=Image.new("RGB", (60, 40), (200, 30, 30)))
    words = tuple(word(text, seed) for seed, text in enumerate(texts))
    return Caption(words, word("<end>", 99), -0.75, picture)


def test_equal_captions_are_equal_and_have_one_hash() -> None:
    one, other = caption("a", "cat"), caption("a", "cat")
    assert one == other and hash(one) == hash(other)
    assert len({one, other}) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"words": (word("a"), word("dog", 1))},
        {"words": (word("a"), word("cat", 7))},  # the same text with another map
        {"words": (word("a"), word("cat", 1, cell=(0, 1)))},
        {"end": None},
        {"score": -1.0},
        {"picture": Picture("other.jpg", Frame(60, 40))},
        {"alternatives": (caption("a"),)},
    ],
)
def test_captions_that_differ_in_anything_are_not_equal(change: dict[str, Any]) -> None:
    assert replace(caption("a", "cat"), **change) != caption("a", "cat")


def test_a_word_is_not_equal_to_its_text() -> None:
    assert word("a") != "a" and word("a") == word("a")


def test_printed_forms_are_one_line() -> None:
    assert repr(caption("a", "cat")) == "Caption('a cat', score=-0.750)"
    assert repr(word("cat")) == "Word('cat', probability=0.607)"
    assert str(caption("a", "cat")) == "a cat"


def test_the_sentence_is_for_readers() -> None:
    assert caption("a", "cat", "'s", "tail").sentence == "A cat's tail."
    assert caption().sentence == ""


def test_a_dict_is_ready_for_json_and_holds_everything() -> None:
    made = replace(caption("a", "cat"), alternatives=(caption("a"),), confidence=0.75)
    values = json.loads(json.dumps(made.to_dict()))
    assert (values["image"], values["caption"], values["sentence"]) == ("photo.jpg", "a cat", "A cat.")
    assert values["confidence"] == 0.75 and values["alternatives"][0]["confidence"] is None
    assert values["score"] == -0.75 and values["log_probability"] == made.log_probability
    assert [entry["text"] for entry in values["words"]] == ["a", "cat"]
    assert np.array_equal(np.array(values["words"][1]["alpha"], np.float32), made.words[1].alpha)
    assert values["end"]["text"] == "<end>" and values["alternatives"][0]["caption"] == "a"
    assert "alpha" not in json.dumps(made.to_dict(maps=False))


def test_a_notebook_shows_the_picture_the_sentence_and_one_map_per_word() -> None:
    made = caption("a", "<b>", "cat")
    html = made._repr_html_()
    frame, _, maps = html.partition("</iframe>")
    assert frame.startswith("<iframe srcdoc=") and frame.count("<") == 1  # the viewer's page, escaped
    assert maps.count("<img") == 1 + 3
    assert "A &lt;b&gt; cat." in maps and "<b>" not in maps  # escaped
    assert "http" not in maps and "<script" not in maps  # self-contained
    assert replace(made, picture=None)._repr_html_().count("<img") == 3
