"""8-bit graphs of tiny networks: close to the exact ones, for every kind of encoder and decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from captioner.export.int8 import quantize_convolutions, quantize_products
from captioner.export.onnx_graphs import export_graphs
from tests.model.tiny_models import SHALLOW, make_network, noise_pixels

PIXELS = noise_pixels(4, 32).numpy()
PIXELS[:, 0, 0], PIXELS[:, 0, 1] = 0, 255  # like photographs, they use the whole range
TRANSFORMER = {"embedding_size": 8, "hidden_size": 8, "attention": {"score": "scaled_dot", "heads": 2, "gate": False}}


def run(graph: Path, **feeds: Any) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def operations(graph: Path) -> list[str]:
    return [node.op_type for node in onnx.load(graph, load_external_data=False).graph.node]


@pytest.mark.parametrize(
    ("encoder", "direct"),
    [
        (SHALLOW, True),  # (pixel - 127) / 128 in all channels: the first convolution reads the pixels
        (
            {"name": "resnet18", "size": 32, "annotations": ("layer2",)},
            False,
        ),  # a mean per channel
        (
            {"name": "convnext_tiny", "size": 32, "annotations": ("features.3",)},
            False,
        ),  # transposed scales
        (
            {"size": 32, "annotations": ("stage4",), "tail": "stage3", "pyramid": {"size": 12, "blocks": 1}},
            True,
        ),  # matrix products beside convolutions
    ],
    ids=["lite", "imagenet", "convnext", "pyramid"],
)
def test_8_bit_encoders_are_close_to_exact_ones(encoder, direct, tmp_path):
    export_graphs(make_network(encoder), tmp_path)
    graph, out = tmp_path / "encoder.onnx", tmp_path / "encoder.int8.onnx"
    before = set(tmp_path.iterdir())
    quantize_convolutions(graph, out, PIXELS)
    assert set(tmp_path.iterdir()) == before | {out}  # no temporary files
    assert "QuantizeLinear" in operations(out)
    assert ("Sub" not in operations(out)) == direct
    assert ("MatMulInteger" in operations(out)) == ("pyramid" in encoder or "convnext" in encoder.get("name", ""))
    (exact,), (rough,) = run(graph, pixels=PIXELS), run(out, pixels=PIXELS)
    assert 0 < np.abs(exact - rough).mean() < 0.1 * np.abs(exact).mean()


@pytest.mark.parametrize(
    "model",
    [
        {"attention": {"heads": 2, "location": "both"}, "grid_encoder": "lstm"},
        {"pool": "attention", "attention": {"score": "cosine"}},  # products with vectors, which stay exact
        {"decoder": "transformer", **TRANSFORMER},
    ],
    ids=["heads and memory", "pool", "transformer"],
)
def test_8_bit_decoders_are_close_to_exact_ones(model, tmp_path):
    network = make_network(**model)
    export_graphs(network, tmp_path)
    found: list[list[np.ndarray]] = []
    for kind in ("onnx", "int8.onnx"):
        begin, decoder = tmp_path / f"begin.{kind}", tmp_path / f"decoder.{kind}"
        if kind == "int8.onnx":
            for graph, out in ((tmp_path / "begin.onnx", begin), (tmp_path / "decoder.onnx", decoder)):
                quantize_products(graph, out)
                assert any("MatMulInteger" in operation for operation in operations(out))
        (annotations,) = run(tmp_path / "encoder.onnx", pixels=PIXELS)
        names = [output.name for output in onnx.load(begin, load_external_data=False).graph.output]
        state = dict(zip(names, run(begin, annotations=annotations), strict=True))
        found.append(run(decoder, words=np.full((4, 1), 5), **state)[:2])  # log-probabilities and alpha
    for exact, rough in zip(*found, strict=True):
        assert 0 < np.abs(exact - rough).max() < 0.1 * np.abs(exact).max()
