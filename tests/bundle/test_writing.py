"""A bundle is written completely or not at all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from captioner.bundle.loading import load_bundle
from captioner.bundle.writing import write_bundle
from captioner.errors import UsageError
from captioner.files.atomic import writer_label
from captioner.options import SearchOptions
from tests.tiny_bundle import write_model


def test_a_written_bundle_loads_unchanged(model):
    loaded = load_bundle(model.folder)
    assert loaded == model
    assert loaded.manifest.decoding == SearchOptions(beam=2, length_power=0.8, max_length=7)
    assert loaded.vocabulary.words[4:6] == ("a", "cat")


def test_the_manifest_has_the_size_and_sha256_of_every_other_file(model):
    listed = json.loads((model.folder / "manifest.json").read_text())["files"]
    there = [path for path in model.folder.iterdir() if path.name != "manifest.json"]
    assert sorted(listed) == sorted(path.name for path in there)
    for path in there:
        assert listed[path.name]["size"] == path.stat().st_size
        assert listed[path.name]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_failed_write_leaves_the_old_bundle(model):
    before = sorted((path.name, path.read_bytes()) for path in model.folder.iterdir())
    with pytest.raises(FileNotFoundError):
        write_bundle(model.folder, {"encoder.onnx": model.folder / "nothing"}, model.manifest, model.vocabulary)
    assert sorted((path.name, path.read_bytes()) for path in model.folder.iterdir()) == before
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]


def test_a_write_replaces_an_older_bundle(model):
    write_model(model.folder, seed=5)
    assert load_bundle(model.folder).manifest.files != model.manifest.files
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]


def _photos(folder: Path) -> None:
    (folder / "me.jpg").write_bytes(b"dear")


def _web_app(folder: Path) -> None:
    """Browsers' extensions, web apps and other programs have a manifest.json too."""
    (folder / "manifest.json").write_text('{"name": "my app", "format": 1, "files": {}}')
    (folder / "me.jpg").write_bytes(b"dear")


def _bundle_with_notes(folder: Path) -> None:
    write_model(folder)
    (folder / "me.jpg").write_bytes(b"dear")


def _bundle_with_a_folder(folder: Path) -> None:
    write_model(folder)
    (folder / "photos").mkdir()
    (folder / "photos" / "me.jpg").write_bytes(b"dear")


@pytest.mark.parametrize("fill", [_photos, _web_app, _bundle_with_notes, _bundle_with_a_folder])
def test_a_folder_with_foreign_files_is_never_replaced(tmp_path, fill):
    folder = tmp_path / "folder"
    folder.mkdir()
    fill(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"not replaced"):
        write_model(folder, seed=5)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_link_is_never_replaced(model, tmp_path):
    (tmp_path / "link").symlink_to(model.folder)
    with pytest.raises(UsageError, match="a link, not a folder"):
        write_model(tmp_path / "link", seed=5)
    assert load_bundle(model.folder) == model


def test_a_writer_that_was_killed_between_the_two_renames_loses_no_bundle(model):
    old = model.folder.rename(model.folder.with_name(".toy.999999.old"))
    unfinished = model.folder.with_name(".toy.999999.new")
    unfinished.mkdir()
    with pytest.raises(FileNotFoundError):
        write_bundle(model.folder, {"encoder.onnx": old / "nothing"}, model.manifest, model.vocabulary)
    assert load_bundle(model.folder) == model
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]


def test_a_killed_writer_leaves_no_folder_for_ever(model):
    """Killed before the old bundle was deleted, while it was, and with the process number of the next writer."""
    parent = model.folder.parent
    write_model(parent / ".toy.999999.old", name="toy", seed=3)
    write_model(parent / ".toy.999998.old", name="toy", seed=4)
    (parent / ".toy.999998.old" / "manifest.json").unlink()
    write_model(parent / f".toy.{writer_label()}.new", name="toy", seed=4)
    (parent / ".toy.notes.old").mkdir()  # not one of ours
    (parent / ".toy.1.old").mkdir()  # of a running process
    (parent / ".toy.elsewhere-999999.new").mkdir()  # of another machine that shares the disk
    write_model(model.folder, seed=5)
    assert sorted(path.name for path in parent.iterdir()) == [
        ".toy.1.old",
        ".toy.elsewhere-999999.new",
        ".toy.notes.old",
        "toy",
    ]


def test_after_a_kill_between_the_two_renames_the_next_write_leaves_only_its_bundle(model):
    model.folder.rename(model.folder.with_name(".toy.999999.old"))
    written = write_model(model.folder, seed=5)
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]
    assert load_bundle(model.folder) == written


def test_foreign_files_in_what_a_killed_writer_left_stay(model):
    left = model.folder.with_name(".toy.999999.old")
    write_model(left, name="toy", seed=3)
    (left / "me.jpg").write_bytes(b"dear")
    write_model(model.folder, seed=5)
    assert [path.name for path in left.iterdir()] == ["me.jpg"]


def test_if_the_new_bundle_cannot_take_its_name_the_old_one_gets_it_back(model, monkeypatch):
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.name.endswith(".new"):
            raise PermissionError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(PermissionError):
        write_model(model.folder, seed=5)
    assert load_bundle(model.folder) == model
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]
