"""Bundles: written whole or not at all, and refused with a reason when anything is wrong with them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from captioner.bundle import storage as bundle
from captioner.bundle.manifest import Manifest
from captioner.errors import CaptionerError, UsageError
from captioner.inference.onnx_backend import OnnxBackend
from captioner.options import SearchOptions
from tests.tiny_bundle import SIDE, write_model

DECODING = {"beam": 3, "length_power": 1, "max_length": 20, "look": "expected", "repeat_penalty": 0}


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "toy")


def change(folder, **values) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_what_is_written_is_loaded(model):
    loaded = bundle.load(model.folder)
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


def test_a_missing_file_is_named(model):
    (model.folder / "decoder.onnx").unlink()
    with pytest.raises(CaptionerError, match=r"decoder\.onnx is missing"):
        bundle.load(model.folder)


def test_a_file_cut_short_is_named(model):
    path = model.folder / "encoder.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CaptionerError, match=r"encoder\.onnx has .* bytes where the manifest says"):
        bundle.load(model.folder)


def test_one_changed_bit_is_found(model):
    path = model.folder / "begin.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CaptionerError, match=r"checksum of begin\.onnx"):
        bundle.load(model.folder)


def test_a_newer_format_asks_for_an_upgrade(model):
    change(model.folder, format=bundle.FORMAT + 1, anything="new")
    with pytest.raises(CaptionerError, match=r"newer than this captioner reads.*upgrade"):
        bundle.load(model.folder)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "not a captioner manifest"),
        ('{"model_type": "bert"}', "not a captioner manifest"),
        ('{"format": "one"}', "format must be int"),
        ('{"format": 1}', "missing"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path, content, said):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(CaptionerError, match=said):
        bundle.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("name", "../evil", "name '../evil'"),
        ("attention", "deep", "one of soft, hard"),
        ("scores", {"BLEU-4": "high"}, "BLEU-4 must be float"),
        ("scores", {"BLEU-4": True}, "BLEU-4 must be float"),
        ("licence", None, "licence must be str"),
        ("surprise", 1, "unknown entry surprise"),
        ("decoding", DECODING | {"beam": 0}, "beam 0 is too small"),
        ("decoding", DECODING | {"beem": 3}, "unknown search option 'beem'"),
        ("decoding", DECODING | {"repeat_penalty": -1}, "repeat_penalty -1.0 is too small"),
        ("decoding", DECODING | {"repeat_penalty": "much"}, "repeat_penalty must be a number"),
        ("files", {"encoder.onnx": {"size": 1}}, "sha256 is missing"),
        ("files", {"/etc/passwd": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"../../x/encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"../../encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"sub/encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "not the name of a file"),
        ("files", {"../other/decoder.onnx": {"size": 1, "sha256": "0" * 64}}, "only the encoder"),
        ("files", {"encoder.onnx": {"size": 1, "sha256": "0" * 64}}, "lists no begin.onnx"),
    ],
)
def test_a_wrong_entry_is_named(model, key, value, said):
    change(model.folder, **{key: value})
    with pytest.raises(CaptionerError, match=said):
        bundle.load(model.folder)


def test_a_model_card_may_be_edited(model):
    (model.folder / "README.md").write_text("# A toy, described better\n")
    assert bundle.load(model.folder).manifest == model.manifest
    (model.folder / "README.md").unlink()
    bundle.load(model.folder)


def test_a_link_out_of_the_folder_is_not_followed(model, tmp_path):
    path = model.folder / "decoder.onnx"
    moved = tmp_path / "elsewhere.onnx"
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(CaptionerError, match="link out of the bundle"):
        bundle.load(model.folder)


@pytest.mark.parametrize("location", ["secret.bin", "../secret.bin", "/etc/hostname", "a" * 200 + ".bin"])
def test_a_graph_may_not_read_files_that_are_not_listed(model, location):
    graph = onnx.load(model.folder / "decoder.onnx")
    weight = next(each for each in graph.graph.initializer if each.name == "embed")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    files = {name: model.folder / name for name in ("encoder.onnx", "begin.onnx")}
    with pytest.raises(CaptionerError, match=r"decoder\.onnx reads weights from .*does not list"):
        bundle.write(
            model.folder, {**files, "decoder.onnx": graph.SerializeToString()}, model.manifest, model.vocabulary
        )


def test_two_bundles_share_an_encoder(model, tmp_path):
    shared = replace(model.manifest.encoder, file="../toy/encoder.onnx")
    other = write_model(tmp_path / "second", encoder=shared)
    assert not (other.folder / "encoder.onnx").exists()
    loaded = bundle.load(other.folder)
    assert loaded.encoder.read_bytes() == model.encoder.read_bytes()
    assert OnnxBackend(loaded).encode(np.zeros((1, SIDE, SIDE, 3), np.uint8)).values.shape == (1, 4, 3)
    (model.folder / "encoder.onnx").write_bytes(b"x" * model.manifest.files["encoder.onnx"].size)
    with pytest.raises(CaptionerError, match="checksum"):
        bundle.load(other.folder)


def test_a_shared_encoder_must_be_in_a_bundle(model, tmp_path):
    other = write_model(tmp_path / "second", encoder=replace(model.manifest.encoder, file="../toy/encoder.onnx"))
    (model.folder / "manifest.json").unlink()
    with pytest.raises(CaptionerError, match="in the bundle 'toy', which is not beside it"):
        bundle.load(other.folder)


def test_a_failed_write_leaves_the_old_bundle(model):
    before = sorted((path.name, path.read_bytes()) for path in model.folder.iterdir())
    with pytest.raises(FileNotFoundError):
        bundle.write(model.folder, {"encoder.onnx": model.folder / "nothing"}, model.manifest, model.vocabulary)
    assert sorted((path.name, path.read_bytes()) for path in model.folder.iterdir()) == before
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]


def test_a_write_takes_the_place_of_an_older_bundle(model):
    write_model(model.folder, seed=5)
    assert bundle.load(model.folder).manifest.files != model.manifest.files
    assert [path.name for path in model.folder.parent.iterdir()] == ["toy"]


def test_a_folder_that_is_no_bundle_is_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.jpg").write_bytes(b"dear")
    with pytest.raises(UsageError, match="not a bundle"):
        write_model(tmp_path / "photos")
    assert (tmp_path / "photos" / "me.jpg").read_bytes() == b"dear"


def test_a_manifest_goes_through_json_unchanged(model):
    assert Manifest.from_json(json.loads(json.dumps(model.manifest.to_json()))) == model.manifest


def test_models_are_found_by_name_and_by_path(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    assert bundle.find("toy") == model.folder
    assert bundle.find(model.folder) == model.folder
    monkeypatch.chdir(tmp_path)
    assert bundle.find("./toy").resolve() == model.folder
    assert ("toy", model.folder) in list(bundle.available())


def test_an_installed_captioner_finds_the_models_of_the_checkout_it_is_called_in(model, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "__file__", str(tmp_path / "site-packages" / "captioner" / "bundle.py"))
    checkout = tmp_path / "checkout"
    (checkout / "weights").mkdir(parents=True)
    model.folder.rename(checkout / "weights" / "toy")
    monkeypatch.chdir(checkout)
    assert bundle.find("toy").resolve() == checkout / "weights" / "toy"
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(checkout / "weights" / "toy" / "manifest.json"))  # no folder: no matter
    assert "toy" in dict(bundle.available())


def test_a_folder_that_is_gone_or_may_not_be_looked_into_hides_no_other_model(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert bundle.find("toy") == model.folder
    real = Path.iterdir

    def iterdir(path):
        if path == Path("weights"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert bundle.find("toy") == model.folder


def test_an_unknown_name_is_told_with_the_search_path_and_the_nearest_name(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    with pytest.raises(UsageError, match=r"unknown model 'toi'.*Did you mean 'toy'.*Searched: ") as raised:
        bundle.find("toi")
    assert str(tmp_path) in str(raised.value)


def test_without_any_model_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "search_path", lambda: [tmp_path])
    with pytest.raises(UsageError, match="no model in any of"):
        bundle.find("default")
    with pytest.raises(UsageError, match="no such folder"):
        bundle.find("no/such/folder")
