"""Writes a bundle with a tiny model as ONNX graphs, and computes the same model in numpy.

The annotations are the mean colors of a 2x2 grid. The state is one vector. Both together give the next word.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from captioner.bundle.loading import Bundle
from captioner.bundle.manifest import EncoderRecord, Manifest
from captioner.bundle.writing import write_bundle
from captioner.options import SearchOptions
from captioner.text.vocabulary import SPECIAL, Vocabulary

SIDE, ROWS, COLS, D = 16, 2, 2, 3
SCALE = 32.0  # large enough for colors to change the words
WORDS = ("a", "cat", "dog", "on", "the", "mat", "runs", "sleeps")
VOCABULARY = Vocabulary(SPECIAL + WORDS, frozenset({"the"}))
V = len(VOCABULARY)


def parameters(seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "embed": generator.standard_normal((V, D)).astype(np.float32),
        "recur": generator.standard_normal((D, D)).astype(np.float32),
        "out": (3 * generator.standard_normal((D, V))).astype(np.float32),
    }


def write_model(folder: Path, *, hard: bool = False, seed: int = 0, name: str | None = None, **changes) -> Bundle:
    """Write a complete bundle. `changes` replace fields of its manifest."""
    manifest = Manifest(
        name=name or folder.name,
        attention="hard" if hard else "soft",
        encoder=EncoderRecord("means", SIDE, ROWS, COLS, D, (0.0, 0.0, 0.0), (SCALE, SCALE, SCALE)),
        training_data="nothing",
        licence="CC0-1.0",
        decoding=SearchOptions(beam=2, length_power=0.8, max_length=7, hard_attention="argmax" if hard else None),
        created_by="tests",
    )
    files: dict[str, bytes | Path] = {
        "encoder.onnx": encoder_graph(),
        "begin.onnx": begin_graph(),
        "decoder.onnx": decoder_graph(parameters(seed), hard),
        "README.md": b"# A tiny model\n",
    }
    manifest = replace(manifest, **changes)
    if manifest.encoder.file != "encoder.onnx":
        del files["encoder.onnx"]
    return write_bundle(folder, files, manifest, VOCABULARY)


def tensor(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, constants=()) -> bytes:
    values = [numpy_helper.from_array(value, name) for name, value in constants]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, values)
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx_model.ir_version = 8
    onnx.checker.check_model(onnx_model)
    return bytes(onnx_model.SerializeToString())


def encoder_graph() -> bytes:
    n = helper.make_node
    cell = [SIDE // ROWS, SIDE // COLS]
    nodes = [
        n("Cast", ["pixels"], ["f"], to=TensorProto.FLOAT),
        n("Div", ["f", "scale"], ["unit"]),
        n("Transpose", ["unit"], ["nchw"], perm=[0, 3, 1, 2]),
        n("AveragePool", ["nchw"], ["pooled"], kernel_shape=cell, strides=cell),
        n("Transpose", ["pooled"], ["nhwc"], perm=[0, 2, 3, 1]),
        n("Reshape", ["nhwc", "shape"], ["annotations"]),
    ]  # fmt: skip
    constants = [("scale", np.array(SCALE, np.float32)), ("shape", np.array([-1, ROWS * COLS, D], np.int64))]
    return model(
        nodes,
        [tensor("pixels", TensorProto.UINT8, "B", SIDE, SIDE, 3)],
        [tensor("annotations", TensorProto.FLOAT, "B", ROWS * COLS, D)],
        constants,
    )


def begin_graph() -> bytes:
    nodes = [
        helper.make_node("Identity", ["annotations"], ["shared.annotations"]),
        helper.make_node("ReduceMean", ["annotations"], ["own.h"], axes=[1], keepdims=1),
    ]
    annotations = [tensor("annotations", TensorProto.FLOAT, "B", ROWS * COLS, D)]
    shared = tensor("shared.annotations", TensorProto.FLOAT, "B", ROWS * COLS, D)
    return model(nodes, annotations, [shared, tensor("own.h", TensorProto.FLOAT, "B", 1, D)])


def decoder_graph(weights: dict[str, np.ndarray], hard: bool) -> bytes:
    n = helper.make_node
    L = ROWS * COLS
    nodes = [
        n("Transpose", ["shared.annotations"], ["keys"], perm=[0, 2, 1]),
        n("MatMul", ["own.h", "keys"], ["scores"]),
        n("Softmax", ["scores"], ["alpha"], axis=2),
    ]
    inputs = [
        tensor("words", TensorProto.INT64, "B", "K"),
        tensor("shared.annotations", TensorProto.FLOAT, "B", L, D),
        tensor("own.h", TensorProto.FLOAT, "B", "K", D),
    ]
    constants = list(weights.items())
    outputs = [
        tensor("log_probabilities", TensorProto.FLOAT, "B", "K", V),
        tensor("alpha", TensorProto.FLOAT, "B", "K", L),
        tensor("gate", TensorProto.FLOAT, "B", "K"),
    ]
    mix = "alpha"
    if hard:
        inputs += [tensor("noise", TensorProto.FLOAT, "B", "K", L), tensor("chosen", TensorProto.FLOAT)]
        outputs.append(tensor("place", TensorProto.INT64, "B", "K"))
        constants += [("depth", np.array(L, np.int64)), ("ends", np.array([0, 1], np.float32))]
        constants.append(("one", np.array(1, np.float32)))
        nodes += [
            n("Log", ["alpha"], ["logs"]),
            n("Add", ["logs", "noise"], ["noisy"]),
            n("ArgMax", ["noisy"], ["place"], axis=2, keepdims=0),
            n("OneHot", ["place", "depth", "ends"], ["single"], axis=-1),
            n("Mul", ["single", "chosen"], ["picked"]),
            n("Sub", ["one", "chosen"], ["rest"]),
            n("Mul", ["alpha", "rest"], ["spread"]),
            n("Add", ["picked", "spread"], ["mix"]),
        ]
        mix = "mix"
    nodes += [
        n("MatMul", [mix, "shared.annotations"], ["context"]),
        n("ReduceMean", ["own.h"], ["mean_h"], axes=[2], keepdims=0),
        n("Sigmoid", ["mean_h"], ["gate"]),
        n("Gather", ["embed", "words"], ["word"], axis=0),
        n("MatMul", ["own.h", "recur"], ["moved"]),
        n("Add", ["moved", "word"], ["sum1"]),
        n("Add", ["sum1", "context"], ["sum2"]),
        n("Tanh", ["sum2"], ["next.h"]),
        n("MatMul", ["next.h", "out"], ["logits"]),
        n("LogSoftmax", ["logits"], ["log_probabilities"], axis=2),
    ]
    return model(nodes, inputs, [*outputs, tensor("next.h", TensorProto.FLOAT, "B", "K", D)], constants)


def numpy_step(weights: dict[str, np.ndarray], annotations, h, words, mix=None):
    """Log-probabilities (B, K, V), alpha (B, K, L) and the new state. `mix` maps alpha to other context weights."""
    scores = np.einsum("bkd,bld->bkl", h, annotations)
    alpha = np.exp(scores - scores.max(-1, keepdims=True))
    alpha /= alpha.sum(-1, keepdims=True)
    context = np.einsum("bkl,bld->bkd", alpha if mix is None else mix(alpha), annotations)
    after = np.tanh(h @ weights["recur"] + weights["embed"][words] + context)
    logits = after @ weights["out"]
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), alpha, after


def means(pixels) -> np.ndarray:
    """The annotations of pixels (B, SIDE, SIDE, 3)."""
    cells = pixels.reshape(len(pixels), ROWS, SIDE // ROWS, COLS, SIDE // COLS, 3) / SCALE
    return cells.mean(axis=(2, 4)).reshape(len(pixels), ROWS * COLS, 3).astype(np.float32)
