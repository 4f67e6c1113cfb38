"""8-bit graphs, which `--fast` runs.

The scales of all inputs are measured here, on training pictures, and stay fixed. So the numbers that a graph computes
for a picture don't depend on the other pictures of a batch: sums of 8-bit products are exact, and everything else is
computed row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.bundle.layout import BEGIN, DECODER, ENCODER, WEIGHTS, int8_graph
from captioner.bundle.loading import Bundle
from captioner.export.graph_edits import point_at_weights
from captioner.inference.backend import State, Step
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import search
from captioner.options import HardAttention, SearchOptions

BATCH = 32  # pictures searched together while ranges are measured

Feed = dict[str, NDArray[Any]]  # the inputs of one run of a graph


def quantize_graphs(exact: Bundle, folder: Path, pixels: NDArray[np.uint8], float_stages: Sequence[str]) -> None:
    """Write 8-bit copies of the three graphs of a bundle beside the graphs in `folder`.

    The ranges are those of captions that the exact model makes of these pictures (B, size, size, 3). `float_stages`
    of the encoder stay in floats: errors of its first layers pass through all others.
    """
    model = _RecordingBackend(exact)
    annotations: list[Feed] = []
    for start in range(0, len(pixels), BATCH):
        encoded = model.encode(pixels[start : start + BATCH])
        annotations.append({"annotations": encoded.values})
        # One attended cell has a wider range than the mean of all cells.
        modes: tuple[HardAttention | None, ...] = ("expected", "argmax") if model.hard else (None,)
        for mode in modes:
            search(model, encoded, SearchOptions(hard_attention=mode))
    feeds: dict[str, Iterable[Feed]] = {
        ENCODER: ({"pixels": picture[None]} for picture in pixels),
        BEGIN: annotations,
        DECODER: model.steps,
    }
    for name, inputs in feeds.items():
        stages = [f"/encoder/{stage.replace('.', '_')}/" for stage in float_stages] if name == ENCODER else []
        quantize_graph(folder / name, folder / int8_graph(name), inputs, exact=stages)


class _RecordingBackend(OnnxBackend):
    """Keeps the inputs of all steps."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.steps: list[Feed] = []

    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        self.steps.append(self.step_inputs(state, words))
        return super().step(state, words)


def quantize_graph(graph: Path, out: Path, feeds: Iterable[Feed], *, exact: Sequence[str] = ()) -> None:
    """A copy of a graph with 8-bit convolutions and matrix products, whose ranges are measured on these inputs.

    Nodes whose names begin with one of `exact` stay as they are.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    model = _folded(graph)
    quantize_static(
        model,
        out,
        _CalibrationData(feeds),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["Conv", "Add", "Clip", "MatMul"],
        nodes_to_quantize=[node.name for node in _quantizable(model) if not node.name.startswith(tuple(exact))],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,  # all 8 bits: 7 bits, which never overflow, double the error of the annotations
        calibrate_method=CalibrationMethod.MinMax,
        per_channel=True,
        # The result of a product stays a float: what follows it in a decoder is computed with floats.
        extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"]},
    )
    point_at_weights(out, graph.with_name(WEIGHTS))


def _quantizable(model: Any) -> Iterator[Any]:
    """Convolutions with what is computed between them, and products with matrices of weights."""
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    convolves = any(node.op_type == "Conv" for node in model.graph.node)
    for node in model.graph.node:
        if node.op_type == "MatMul":
            # 8 bits would not make products with a vector faster.
            sizes = weights.get(node.input[1], [])
            if len(sizes) == 2 and min(sizes) > 1:
                yield node
        elif node.op_type == "Conv" or (convolves and node.op_type in ("Add", "Clip")):
            yield node


def _folded(graph: Path) -> Any:
    """The graph with its constants computed. Only then does the quantizer see the converted weights as weights."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    folded = graph.with_suffix(".folded.onnx")  # in the folder of the weights, because it still points to them
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    model = onnx.load(str(folded))
    folded.unlink()
    add_pre_process_metadata(model)  # else the quantizer warns that its preparation is missing
    return model


class _CalibrationData:
    """Inputs one by one, in the interface of onnxruntime's CalibrationDataReader."""

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self.feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)
