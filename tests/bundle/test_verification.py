"""A bundle with a damaged, missing or foreign file is refused with the reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from captioner.bundle.loading import load_bundle
from captioner.bundle.writing import write_bundle
from captioner.errors import CaptionerError
from captioner.inference.onnx_backend import OnnxBackend
from tests.tiny_bundle import SIDE, write_model


def test_a_missing_file_is_named(model):
    (model.folder / "decoder.onnx").unlink()
    with pytest.raises(CaptionerError, match=r"decoder\.onnx is missing"):
        load_bundle(model.folder)


def test_a_file_cut_short_is_named(model):
    path = model.folder / "encoder.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CaptionerError, match=r"encoder\.onnx has .* bytes where the manifest says"):
        load_bundle(model.folder)


def test_a_single_changed_bit_is_detected(model):
    path = model.folder / "begin.onnx"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CaptionerError, match=r"checksum of begin\.onnx"):
        load_bundle(model.folder)


def test_a_model_card_may_be_edited(model):
    (model.folder / "README.md").write_text("# A toy, described better\n")
    assert load_bundle(model.folder).manifest == model.manifest
    (model.folder / "README.md").unlink()
    load_bundle(model.folder)


@pytest.mark.parametrize("inside", [False, True])
def test_a_link_is_not_followed(model, tmp_path, inside):
    path = model.folder / "decoder.onnx"
    moved = (model.folder if inside else tmp_path) / "elsewhere.onnx"
    path.rename(moved)
    path.symlink_to(moved)
    with pytest.raises(CaptionerError, match=r"decoder\.onnx is a link, which is not followed"):
        load_bundle(model.folder)


@pytest.mark.parametrize("location", ["secret.bin", "../secret.bin", "/etc/hostname", "a" * 200 + ".bin"])
def test_a_graph_may_not_read_files_that_are_not_listed(model, location):
    graph = onnx.load(model.folder / "decoder.onnx")
    weight = next(tensor for tensor in graph.graph.initializer if tensor.name == "embed")
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    files = {name: model.folder / name for name in ("encoder.onnx", "begin.onnx")}
    with pytest.raises(CaptionerError, match=r"decoder\.onnx reads weights from .*does not list"):
        write_bundle(
            model.folder, {**files, "decoder.onnx": graph.SerializeToString()}, model.manifest, model.vocabulary
        )


def test_two_bundles_share_an_encoder(model, tmp_path):
    shared = replace(model.manifest.encoder, file="../toy/encoder.onnx")
    other = write_model(tmp_path / "second", encoder=shared)
    assert not (other.folder / "encoder.onnx").exists()
    loaded = load_bundle(other.folder)
    assert loaded.path(shared.file).read_bytes() == model.path("encoder.onnx").read_bytes()
    assert OnnxBackend(loaded).encode(np.zeros((1, SIDE, SIDE, 3), np.uint8)).values.shape == (1, 4, 3)
    (model.folder / "encoder.onnx").write_bytes(b"x" * model.manifest.files["encoder.onnx"].size)
    with pytest.raises(CaptionerError, match="checksum"):
        load_bundle(other.folder)


def test_a_shared_encoder_must_be_in_a_bundle(model, tmp_path):
    other = write_model(tmp_path / "second", encoder=replace(model.manifest.encoder, file="../toy/encoder.onnx"))
    (model.folder / "manifest.json").unlink()
    with pytest.raises(CaptionerError, match="in the bundle 'toy', which is not beside it"):
        load_bundle(other.folder)
