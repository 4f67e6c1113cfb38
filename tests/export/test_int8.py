"""8-bit graphs of tiny networks: close to the exact ones for every kind of encoder and decoder, in any batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from captioner.export.int8 import quantize_graph
from captioner.export.onnx_graphs import export_graphs
from tests.model.tiny_models import SHALLOW, make_network, noise_pixels

PIXELS = noise_pixels(4, 32).numpy()
PYRAMID = {"size": 32, "annotations": ("stage4",), "tail": "stage3", "pyramid": {"size": 12, "blocks": 1}}
TRANSFORMER = {"embedding_size": 8, "hidden_size": 8, "attention": {"score": "scaled_dot", "heads": 2, "gate": False}}
SPARSE = {"normalizer": "entmax15", "last_word": True}


def run(graph: Path, **feeds: Any) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def nodes(graph: Path) -> Iterator[Any]:
    yield from onnx.load(graph, load_external_data=False).graph.node


def quantized(graph: Path) -> dict[str, bool]:
    """Convolutions and products by name: whether they read 8-bit numbers."""
    dequantized = {node.output[0] for node in nodes(graph) if node.op_type == "DequantizeLinear"}
    return {
        node.name: {node.input[0], node.input[1]} <= dequantized
        for node in nodes(graph)
        if node.op_type in ("Conv", "MatMul")
    }


@pytest.mark.parametrize(
    "encoder",
    [
        SHALLOW,
        {"name": "resnet18", "size": 32, "annotations": ("layer2",)},
        {"name": "convnext_tiny", "size": 32, "annotations": ("features.3",)},  # transposed scales, products
        PYRAMID,  # products beside convolutions
    ],
    ids=["lite", "imagenet", "convnext", "pyramid"],
)
def test_8_bit_encoders_are_close_to_exact_ones_in_any_batch(encoder, tmp_path):
    network = make_network(encoder)
    export_graphs(network, tmp_path)
    graph, out = tmp_path / "encoder.onnx", tmp_path / "encoder.int8.onnx"
    before = set(tmp_path.iterdir())
    first = f"/encoder/{network.encoder.order[0].replace('.', '_')}/"
    quantize_graph(graph, out, [{"pixels": picture[None]} for picture in PIXELS], exact=[first])
    assert set(tmp_path.iterdir()) == before | {out}  # no temporary files
    is_quantized = quantized(out)
    assert not any(value for name, value in is_quantized.items() if name.startswith(first))
    convolutions = [value for name, value in is_quantized.items() if "Conv" in name and not name.startswith(first)]
    assert convolutions and all(convolutions)
    (exact,), (rough,) = run(graph, pixels=PIXELS), run(out, pixels=PIXELS)
    assert 0 < np.abs(exact - rough).mean() < 0.1 * np.abs(exact).mean()
    singly = np.concatenate([run(out, pixels=picture[None])[0] for picture in PIXELS])
    assert np.array_equal(singly, rough)


@pytest.mark.parametrize(
    "model",
    [
        {"attention": {"heads": 2, "location": "both"}, "grid_encoder": "lstm"},
        {"pool": "attention", "attention": {"score": "cosine"}},  # products with vectors, which stay exact
        {"attention": SPARSE},
        {"decoder": "transformer", **TRANSFORMER},
    ],
    ids=["heads and memory", "pool", "entmax and last word", "transformer"],
)
def test_8_bit_decoders_are_close_to_exact_ones_in_any_batch(model, tmp_path):
    network = make_network(**model)
    export_graphs(network, tmp_path)
    (annotations,) = run(tmp_path / "encoder.onnx", pixels=PIXELS)
    words = np.array([[5], [6], [5], [7]])
    outputs: dict[str, dict[str, np.ndarray]] = {}
    for kind in ("onnx", "int8.onnx"):
        begin, decoder = tmp_path / f"begin.{kind}", tmp_path / f"decoder.{kind}"
        if kind == "int8.onnx":
            quantize_graph(tmp_path / "begin.onnx", begin, [{"annotations": annotations}])
            quantize_graph(tmp_path / "decoder.onnx", decoder, [{"words": words, **outputs["state"]}])
            assert any(quantized(begin).values()) and any(quantized(decoder).values())
        names = [output.name for output in onnx.load(begin, load_external_data=False).graph.output]
        outputs["state"] = dict(zip(names, run(begin, annotations=annotations), strict=True))
        log_probabilities, alpha = run(decoder, words=words, **outputs["state"])[:2]
        outputs[kind] = {"log_probabilities": log_probabilities, "alpha": alpha}
    for exact, rough in zip(outputs["onnx"].values(), outputs["int8.onnx"].values(), strict=True):
        assert 0 < np.abs(exact - rough).max() < 0.1 * np.abs(exact).max()
    for i in range(4):  # alone with two hypotheses, and with three
        rows = []
        for count in (2, 3):
            state = {k: v[i : i + 1] for k, v in outputs["state"].items()}
            state = {k: v.repeat(count, 1) if k.startswith("own.") else v for k, v in state.items()}
            rows.append(run(tmp_path / "decoder.int8.onnx", words=words[i : i + 1].repeat(count, 1), **state))
        for two, three in zip(*rows, strict=True):
            assert np.array_equal(two, three[:, :2])
