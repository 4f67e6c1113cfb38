"""Exported graphs under onnxruntime against torch, and every weight stored once.

The bundle's two backends are compared step by step over states that search would make: other counts of
images and hypotheses than the graphs were traced with (2 and 3), selected and reordered.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors import safe_open

from captioner.bundle.layout import WEIGHTS
from captioner.bundle.loading import Bundle
from captioner.export.onnx_graphs import export_graphs
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.torch_backend import TorchBackend, load_backend
from captioner.model.weights import load_network
from tests.export.network_bundles import GRAPHS, write_network_bundle
from tests.model.tiny_models import SHALLOW, VOCABULARY, make_network, noise_pixels

PYRAMID = {"size": 64, "annotations": ("stage6", "head"), "tail": "stage6"}

# The encoder's and the decoder's settings.
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "soft": (SHALLOW, {}),
    "soft, two layers, untied": (SHALLOW, {"layers": 2, "tied": False, "output_word": False}),
    "soft, bare": (SHALLOW, {"annotation_size": None, "output_context": False, "attention": {"gate": False}}),
    "hard": (SHALLOW, {"attention": {"mode": "hard", "temperature": 0.7}}),
    "hard, two layers": (SHALLOW, {"layers": 2, "attention": {"mode": "hard"}}),
    "hard, untied": (SHALLOW, {"tied": False, "attention": {"mode": "hard"}}),
    "joined stages and tail": ({"size": 64, "annotations": ("stage5", "head"), "tail": "stage6"}, {}),
    "pyramid, entmax15, last word": (
        {**PYRAMID, "pyramid": {"size": 12}},
        {"annotation_size": None, "attention": {"normalizer": "entmax15", "last_word": True, "temperature": 0.5}},
    ),
    "pyramid with a block, sparsemax, hard": (
        {**PYRAMID, "pyramid": {"size": 12, "blocks": 1}},
        {"annotation_size": None, "attention": {"normalizer": "sparsemax", "mode": "hard"}},
    ),
    "another backbone": ({"name": "mobilenet_v3_small", "size": 64, "stride": 16}, {}),
}


@pytest.fixture(scope="module", params=NETWORKS.values(), ids=list(NETWORKS))
def made(request, tmp_path_factory) -> Bundle:
    encoder, model = request.param
    network = make_network(encoder, **model)
    folder = tmp_path_factory.mktemp("graphs")
    return write_network_bundle(network, folder, hard_attention="expected")


@pytest.fixture(scope="module")
def both(made) -> tuple[OnnxBackend, TorchBackend]:
    return OnnxBackend(made, threads=1), load_backend(made, "cpu")


def test_annotations_equal_torchs(both):
    light, heavy = both
    for count in (1, 3):
        pixels = noise_pixels(count, light.image_size).numpy()
        found, expected = light.encode(pixels).values, heavy.encode(pixels).values.numpy()
        assert found.shape == expected.shape
        assert np.abs(expected).max() > 0.1
        assert np.abs(found - expected).max() < 1e-4 * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize("hard_attention", ["expected", "argmax", "sampled"])
def test_steps_equal_torchs_for_other_numbers_of_images_and_hypotheses(both, hard_attention):
    light = both[0]
    rng = np.random.default_rng(0)
    pixels = noise_pixels(4, light.image_size).numpy()
    encoded = light.encode(pixels)
    states = [backend.begin(encoded, hard_attention, seed=3) for backend in both]
    first = np.zeros((4, 5), np.int64)
    states = [backend.select_hypotheses(state, first) for backend, state in zip(both, states, strict=True)]
    seen = set()
    for t in range(4):
        images, hypotheses = states[0].own["h0"].shape[:2]
        words = rng.integers(4, len(VOCABULARY), (images, hypotheses)) if t else np.ones((4, 5), np.int64)
        ours, theirs = (backend.step(state, words) for backend, state in zip(both, states, strict=True))
        for name in ("log_probabilities", "alpha", "gate"):
            found, expected = getattr(ours, name), getattr(theirs, name)
            assert found.shape == expected.shape and found.dtype == expected.dtype == np.float32
            assert np.abs(found - expected).max() < 1e-4, name
        assert (ours.cell is None) == (theirs.cell is None) == (hard_attention == "expected" or not light.hard)
        if ours.cell is not None:
            assert np.array_equal(ours.cell, theirs.cell) and ours.cell.dtype == theirs.cell.dtype
            seen |= set(ours.cell.flatten().tolist())
        parents = rng.integers(0, hypotheses, (images, 7 - t))
        kept = rng.permutation(images)[:3]
        states = [
            backend.select_images(backend.select_hypotheses(step.state, parents), kept)
            for backend, step in zip(both, (ours, theirs), strict=True)
        ]
    if light.hard and hard_attention == "sampled":
        assert len(seen) > 3


def test_all_weights_are_in_the_safetensors_file(made):
    """Every pointer leads to the tensor of its name. The graphs contain only a few constants."""
    data = (made.folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    records = json.loads(data[8 : 8 + length])
    records.pop("__metadata__", None)
    pointed = set()
    for name in GRAPHS:
        graph = onnx.load(str(made.folder / name), load_external_data=False).graph
        inside = 0
        for tensor in graph.initializer:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                inside += tensor.ByteSize()
                continue
            where = {entry.key: entry.value for entry in tensor.external_data}
            assert where["location"] == WEIGHTS
            begin = int(where["offset"]) - 8 - length
            (owner,) = [k for k, r in records.items() if r["data_offsets"] == [begin, begin + int(where["length"])]]
            own = tensor.name.removesuffix(".stored")
            assert owner == own or (own, owner) == ("decoder.output.weight", "decoder.embedding.weight")
            assert list(tensor.dims) == records[owner]["shape"]
            pointed.add(owner)
        constants = sum(a.t.ByteSize() for node in graph.node for a in node.attribute if a.HasField("t"))
        assert inside + constants < 10_000, name
    unused = {name for name in records if name not in pointed}
    assert all(name.endswith("num_batches_tracked") for name in unused), unused


def test_matrices_are_stored_as_float16_and_vectors_as_float32(made):
    data = (made.folder / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    for name, record in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__" and not name.endswith("num_batches_tracked"):
            assert record["dtype"] == ("F16" if len(record["shape"]) > 1 else "F32"), name


def test_a_tied_matrix_is_stored_once(made):
    with safe_open(made.folder / WEIGHTS, "pt") as file:
        names = set(file.keys())
    assert ("decoder.output.weight" in names) != load_network(made).decoder.settings.tied
    assert "decoder.embedding.weight" in names


def test_export_does_not_change_the_network(tmp_path):
    network = make_network()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    export_graphs(network, tmp_path)
    for name, value in network.state_dict().items():
        assert value.dtype == before[name].dtype and torch.equal(value, before[name]), name


def test_the_graphs_are_small(made):
    assert all((made.folder / name).stat().st_size < 300_000 for name in GRAPHS)
    assert not [path for path in Path(made.folder).iterdir() if path.suffix == ".data"]


def test_convolutions_pad_their_own_input(made):
    operations = [node.op_type for node in onnx.load(made.path("encoder.onnx"), load_external_data=False).graph.node]
    assert "Conv" in operations and "Pad" not in operations
