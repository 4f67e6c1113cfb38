"""COCO results: ids, valid JSON after every caption, and continuing a list of an earlier run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.writers.coco_writer import Begun, CocoWriter, finished_names, image_ids_from_names, read_begun
from tests.overlay.handmade_captions import caption

IDS = {"img_7.jpg": 7, "img_10.jpg": 10}


def test_ids_are_the_last_numbers_of_the_names():
    names = ["COCO_val2014_000000000042.jpg", "2014/7.png"]
    assert image_ids_from_names(names) == {names[0]: 42, names[1]: 7}


@pytest.mark.parametrize("names", [["dog.jpg", "7.jpg"], ["a/7.jpg", "b/7.png"], ["7.jpg", "07.jpg"]])
def test_names_without_a_number_or_with_the_same_number_give_no_ids(names):
    assert image_ids_from_names(names) is None


def test_a_file_is_valid_json_after_every_caption(tmp_path: Path):
    path = tmp_path / "results.json"
    with path.open("w") as file:
        writer = CocoWriter(file, IDS, seekable=True)
        assert json.loads(path.read_text()) == []
        writer.write("img_7.jpg", caption("a dog"))
        assert json.loads(path.read_text()) == [{"image_id": 7, "caption": "a dog"}]
        writer.write("img_10.jpg", caption("a cat"))
        assert [entry["image_id"] for entry in json.loads(path.read_text())] == [7, 10]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_stream_is_valid_json_when_it_is_closed(monkeypatch, count):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    writer = CocoWriter(stream, IDS, seekable=False)
    for name in list(IDS)[:count]:
        writer.write(name, caption("a dog"))
    writer.close()
    assert len(json.loads(stream.getvalue())) == count


def test_without_ids_images_are_numbered_and_named(tmp_path: Path):
    path = tmp_path / "results.json"
    for name in ("dog.jpg", "cat.jpg"):  # the second run continues the first
        begun = read_begun(path)
        with path.open("r+" if begun.entries else "w") as file:
            CocoWriter(file, None, seekable=True, begun=begun).write(name, caption("a dog"))
    entries = json.loads(path.read_text())
    assert [(entry["image_id"], entry["file_name"]) for entry in entries] == [(1, "dog.jpg"), (2, "cat.jpg")]
    assert finished_names(read_begun(path), None) == {"dog.jpg", "cat.jpg"}


def test_a_list_with_running_numbers_keeps_them_when_it_is_continued_with_ids(tmp_path: Path):
    path = tmp_path / "results.json"
    path.write_text('[{"image_id": 1, "caption": "a", "file_name": "img_7.jpg"}]')
    begun = read_begun(path)
    assert finished_names(begun, IDS) == {"img_7.jpg"}
    with path.open("r+") as file:
        CocoWriter(file, IDS, seekable=True, begun=begun).write("img_10.jpg", caption("a cat"))
    assert [entry["image_id"] for entry in json.loads(path.read_text())] == [1, 2]


def test_images_of_a_list_are_found_by_their_ids():
    begun = Begun(({"image_id": 10, "caption": "a dog"},), 1)
    assert finished_names(begun, IDS) == {"img_10.jpg"}


@pytest.mark.parametrize("content", ["", "[]\n", None])
def test_an_empty_or_missing_file_is_an_empty_list(tmp_path: Path, content):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    assert read_begun(tmp_path / "results.json") == Begun()


@pytest.mark.parametrize("content", ["text", "{}x", '[{"image_id": "7", "caption": "a"}]', "[3]", '[{"image_id": 7}]'])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content):
    (tmp_path / "results.json").write_text(content)
    with pytest.raises(UsageError, match="not a list of COCO results"):
        read_begun(tmp_path / "results.json")
