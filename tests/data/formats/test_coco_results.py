"""Errors of result and reference files say what is wrong and how often."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.data.formats.coco_results import mismatches, pair, read_references, read_results
from captioner.errors import CaptionerError


def written(folder: Path, content: object) -> Path:
    file = folder / "file.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def test_an_image_id_may_be_a_number_or_text(tmp_path: Path) -> None:
    assert read_results(written(tmp_path, [{"image_id": 7, "caption": "x"}])) == {"7": "x"}
    assert read_results(written(tmp_path, [{"image_id": "7", "caption": "x", "id": 1}])) == {"7": "x"}


def test_references_keep_their_order(tmp_path: Path) -> None:
    annotations = [{"image_id": i, "caption": c} for i, c in [(2, "b"), (1, "a"), (2, "c")]]
    read = read_references(written(tmp_path, {"annotations": annotations, "images": []}))
    assert list(read.items()) == [("2", ["b", "c"]), ("1", ["a"])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("  \n", "the file is empty"),
        ('[{"image_id": 1, ', "the JSON is cut off .*line 1"),
        ("[" * 100_000, "nested too deeply"),
        ([], "no results"),
        ({"annotations": []}, "an object with the keys annotations"),
        ("3", "it contains a int"),
        ([{"image_id": 1, "caption": "x"}, {"image_id": 2}, 5], "2 of 3 results without .* position 1"),
        ([{"image_id": 1, "caption": None}], "1 of 1 results without"),
        (
            [{"image_id": i, "caption": "x"} for i in (1, 2, 1, 2, 3, 1)],
            r"2 images with more than one result \(1, 2\)",
        ),
    ],
)
def test_the_error_for_a_bad_results_file_has_the_reason(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(CaptionerError, match=message) as error:
        read_results(written(tmp_path, content))
    assert "file.json" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ([{"image_id": 1, "caption": "x"}], "not in COCO's captions format.*a list of 1"),
        ({"annotations": []}, "no references"),
        ({"annotations": [{"image_id": 1, "bbox": []}]}, "1 of 1 annotations without"),
    ],
)
def test_the_error_for_a_bad_references_file_has_the_reason(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(CaptionerError, match=message):
        read_references(written(tmp_path, content))


def test_a_file_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(b'["\xff"]')
    with pytest.raises(CaptionerError, match="not UTF-8 text"):
        read_results(tmp_path / "file.json")


def test_images_that_only_one_file_has_are_counted() -> None:
    pairing = pair({"1": "x", "2": "y", "9": "z"}, {"2": ["b"], "1": ["a"], "3": ["c"], "4": ["d"]})
    assert pairing.results == {"1": "x", "2": "y"} and pairing.references == {"1": ["a"], "2": ["b"]}
    assert mismatches(pairing) == [
        "1 result of images without references (9)",
        "2 images with references but without a result (3, 4)",
    ]
