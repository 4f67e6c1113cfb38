"""8-bit graphs, which `--backend int8` runs.

Matrix products measure the ranges of their inputs at run time. The convolutions of the encoder need them beforehand, so
the encoder is calibrated with some pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.bundle.layout import WEIGHTS
from captioner.export.graph_edits import consumers_of, drop_unused, point_at_weights

Pixels = NDArray[np.uint8]  # (S, S, 3)


def quantize_products(graph: Path, out: Path) -> None:
    """A copy of a graph with 8-bit matrix products."""
    _quantize_products(_folded(graph), out)
    point_at_weights(out, graph.with_name(WEIGHTS))


def _quantize_products(model: Any, out: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    vectors = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) < 2 or tensor.dims[-1] == 1}
    with_vectors = [node.name for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in vectors]
    quantize_dynamic(
        model,
        out,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=with_vectors,  # 8 bits would not make them faster
        per_channel=True,
        reduce_range=True,  # 7 bits: products of the full range can overflow in 16-bit sums
    )


def quantize_convolutions(graph: Path, out: Path, pictures: Iterable[Pixels]) -> None:
    """A copy of an encoder's graph with 8-bit convolutions, whose ranges are measured on these pictures.

    Its matrix products, which only some encoders have, become 8-bit ones too.
    """
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    model = _folded(graph)
    if any(node.op_type == "MatMul" for node in model.graph.node):
        _quantize_products(model, out)
        model = _prepared(onnx.load(str(out)))
    quantize_static(
        model,
        out,
        _CalibrationData(pictures),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "Add", "Clip"],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,  # all 8 bits: 7 bits, which never overflow, double the error of the annotations
        calibrate_method=CalibrationMethod.MinMax,
        per_channel=True,
    )
    _use_pixels_directly(out)
    point_at_weights(out, graph.with_name(WEIGHTS))


def _folded(graph: Path) -> Any:
    """The graph with its constants computed. Only then does the quantizer see the converted weights as weights."""
    import onnx
    import onnxruntime

    folded = graph.with_suffix(".folded.onnx")  # in the folder of the weights, because it still points to them
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    model = onnx.load(str(folded))
    folded.unlink()
    return _prepared(model)


def _prepared(model: Any) -> Any:
    """The model, marked as ready for the quantizer, which would otherwise warn that its preparation is missing."""
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    add_pre_process_metadata(model)
    return model


class _CalibrationData:
    """Pictures one by one, in the interface of onnxruntime's CalibrationDataReader."""

    def __init__(self, pictures: Iterable[Pixels]) -> None:
        self.pictures: Iterator[Pixels] = iter(pictures)

    def get_next(self) -> dict[str, Pixels] | None:
        picture = next(self.pictures, None)
        return None if picture is None else {"pixels": picture[None]}


def _use_pixels_directly(path: Path) -> None:
    """Let the first convolution read the pixels themselves, where normalising and quantizing would not change them.

    Pixels are 8-bit numbers already: with the scale 1 / std and the zero point mean, they stand for
    (pixel - mean) / std.
    """
    import onnx

    model = onnx.load(str(path))
    consumers = consumers_of(model)
    chain = [consumers["pixels"][0]]
    while chain[-1].op_type in ("Transpose", "Cast", "Sub", "Div"):
        chain += consumers[chain[-1].output[0]][:1]
    if [node.op_type for node in chain] != ["Transpose", "Cast", "Sub", "Div", "QuantizeLinear"]:
        return
    transpose, _, subtract, divide, quantize = chain
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    mean, std = constants[subtract.input[1]], constants[divide.input[1]]
    scale, zero_point = (constants[name] for name in quantize.input[1:])
    if np.allclose(scale * std, 1, rtol=1e-6) and np.all(zero_point == mean):
        for reader in consumers[quantize.output[0]]:
            reader.input[0] = transpose.output[0]
        drop_unused(model)
        path.write_bytes(model.SerializeToString())
