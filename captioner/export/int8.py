"""Graphs in 8 bits: what `--backend int8` runs.

The decoder's matrix products take their activations' ranges as they come. The encoder's convolutions need
them beforehand: they are seen by running it on some pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.export.onnx_graphs import WEIGHTS, drop_unused, point_at_weights

Pixels = NDArray[np.uint8]  # (S, S, 3)


def quantise_products(graph: Path, out: Path) -> None:
    """A copy of a graph whose matrix products are in 8 bits."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = _folded(graph)
    vectors = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) < 2 or tensor.dims[-1] == 1}
    thin = [node.name for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in vectors]
    quantize_dynamic(
        *(model, out),
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=thin,  # no quicker in 8 bits
        per_channel=True,
        reduce_range=True,  # 7 bits: products of full ranges overflow where they are summed in 16
    )
    point_at_weights(out, graph.with_name(WEIGHTS))


def quantise_convolutions(graph: Path, out: Path, pictures: Iterable[Pixels]) -> None:
    """A copy of an encoder's graph whose convolutions are in 8 bits, with ranges as these pictures show them."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    quantize_static(
        *(_folded(graph), out, _Reader(pictures)),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "Add", "Clip"],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,  # all 8 bits: with 7, which overflow nowhere, annotations are twice as far off
        calibrate_method=CalibrationMethod.MinMax,
        per_channel=True,
    )
    _pixels_as_they_are(out)
    point_at_weights(out, graph.with_name(WEIGHTS))


def _folded(graph: Path) -> Any:
    """The graph with its constants computed: only then are its weights, which it widens itself, seen as weights."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    folded = graph.with_suffix(".folded.onnx")  # beside the weights, into which it still points
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    model = onnx.load(str(folded))
    folded.unlink()
    add_pre_process_metadata(model)  # what onnxruntime's own preparation would do is done: it need not ask for it
    return model


class _Reader:
    """Pictures one by one, as onnxruntime asks for them."""

    def __init__(self, pictures: Iterable[Pixels]) -> None:
        self.pictures: Iterator[Pixels] = iter(pictures)

    def get_next(self) -> dict[str, Pixels] | None:
        picture = next(self.pictures, None)
        return None if picture is None else {"pixels": picture[None]}


def _pixels_as_they_are(path: Path) -> None:
    """Let the first convolution take the pixels themselves, where they are what it would be given.

    They are numbers of 8 bits already: with a scale of 1 / std and a zero of mean they mean (pixel - mean) / std.
    """
    import onnx

    model = onnx.load(str(path))
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    way = [users["pixels"][0]]
    while way[-1].op_type in ("Transpose", "Cast", "Sub", "Div"):
        way += users[way[-1].output[0]][:1]
    if [node.op_type for node in way] != ["Transpose", "Cast", "Sub", "Div", "QuantizeLinear"]:
        return
    turn, _, less, over, quantize = way
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    mean, std = constants[less.input[1]], constants[over.input[1]]
    scale, zero = (constants[name] for name in quantize.input[1:])
    if np.allclose(scale * std, 1, rtol=1e-6) and np.all(zero == mean):
        for reader in users[quantize.output[0]]:
            reader.input[0] = turn.output[0]
        drop_unused(model)
        path.write_bytes(model.SerializeToString())
