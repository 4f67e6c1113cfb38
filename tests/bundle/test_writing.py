"""A bundle is written completely or not at all."""

from __future__ import annotations

import hashlib
import json

import pytest

from captioner.bundle.loading import load_bundle
from captioner.bundle.writing import write_bundle
from captioner.errors import UsageError
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


def test_a_folder_that_is_no_bundle_is_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_bytes(b"dear")
    with pytest.raises(UsageError, match="not a bundle"):
        write_model(tmp_path / "photos")
    assert (tmp_path / "photos" / "me.jpg").read_bytes() == b"dear"
