"""Edits of finished ONNX graphs: weights in a file beside them, less padding, fewer products, no unused nodes."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ELEMENT_TYPES = {"F32": 1, "F16": 10, "I64": 7}  # safetensors' names of ONNX's element types


def point_at_weights(graph: Path, weights: Path) -> None:
    """Replace the weights of a graph by pointers into a safetensors file. float16 weights are converted to float32."""
    import onnx
    from safetensors.numpy import load_file

    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        records: dict[str, Any] = json.loads(file.read(length))
    stored = load_file(weights)
    model = onnx.load(str(graph))
    initializers, casts = [], []
    for tensor in model.graph.initializer:
        name = tensor.name
        if name not in stored:  # a tied output layer is stored once, as the embedding
            name = name.replace("decoder.output.weight", "decoder.embedding.weight")
        # Constants are not stored. And onnxruntime, which prepares the 8-bit graphs, may transpose a tensor without
        # changing its name.
        if name not in stored or not _same(onnx.numpy_helper.to_array(tensor), stored[name]):
            initializers.append(tensor)
            continue
        record = records[name]
        begin, end = record["data_offsets"]
        half = record["dtype"] == "F16"
        pointer = onnx.TensorProto(
            name=f"{tensor.name}.stored" if half else tensor.name,
            data_type=_ELEMENT_TYPES[record["dtype"]],
            dims=record["shape"],
            data_location=onnx.TensorProto.EXTERNAL,
        )
        for key, value in (("location", weights.name), ("offset", 8 + length + begin), ("length", end - begin)):
            pointer.external_data.add(key=key, value=str(value))
        initializers.append(pointer)
        if half:
            casts.append(onnx.helper.make_node("Cast", [pointer.name], [tensor.name], to=onnx.TensorProto.FLOAT))
    del model.graph.initializer[:]
    model.graph.initializer.extend(initializers)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*casts, *nodes])
    graph.write_bytes(model.SerializeToString())


def _same(tensor: NDArray[Any], stored: NDArray[Any]) -> bool:
    return tensor.shape == stored.shape and np.array_equal(tensor.astype(stored.dtype), stored)


def merge_padding(graph: Path, pixels: NDArray[np.uint8]) -> None:
    """Remove Pad nodes before convolutions and let the convolutions pad their input. This saves a sixth of the time.

    A Pad node between two convolutions makes onnxruntime leave its blocked memory layout and return to it. `pixels` are
    an input for which the amounts of padding are computed.
    """
    import onnx
    import onnxruntime

    model = onnx.load(str(graph))
    consumers = consumers_of(model)
    pads = [
        node
        for node in model.graph.node
        if node.op_type == "Pad" and all(user.op_type == "Conv" for user in consumers.get(node.output[0], []))
    ]
    if not pads:
        return
    # The exporter writes the amounts as a computation on constants. onnxruntime computes them.
    with_amounts = onnx.ModelProto()
    with_amounts.CopyFrom(model)
    with_amounts.graph.output.extend(onnx.ValueInfoProto(name=node.input[1]) for node in pads)
    session = onnxruntime.InferenceSession(with_amounts.SerializeToString(), providers=["CPUExecutionProvider"])
    amounts = session.run([node.input[1] for node in pads], {"pixels": pixels})
    for node, (_, _, top, left, _, _, bottom, right) in zip(pads, amounts, strict=True):
        for convolution in consumers[node.output[0]]:
            own = next(attribute for attribute in convolution.attribute if attribute.name == "pads")
            own.ints[:] = [a + int(b) for a, b in zip(own.ints, (top, left, bottom, right), strict=True)]
            convolution.input[0] = node.input[0]
    drop_unused(model)
    graph.write_bytes(model.SerializeToString())


def merge_equal_words(graph: Path) -> None:
    """Multiply the embedding of a word once per step, not once per hypothesis.

    The hypotheses of a batch end in the same few words: in a batch of 32 pictures, two thirds of these products of a
    step repeat others. A table of the products of all words would take 62 MB for `default`, and a tenth of a second
    when it is built.
    """
    import onnx

    model = onnx.load(str(graph))
    gather = next(node for node in model.graph.node if node.op_type == "Gather" and node.input[1] == "words")
    products = [node for node in consumers_of(model)[gather.output[0]] if node.op_type == "MatMul"]
    if not products:
        return
    make = onnx.helper.make_node
    nodes = [
        make("Unique", ["words"], ["words.unique", "", "words.inverse"]),
        make("Shape", ["words"], ["words.shape"]),
        make("Reshape", ["words.inverse", "words.shape"], ["words.place"]),
        make("Gather", [gather.input[0], "words.unique"], ["words.embedded"]),
    ]
    for node in model.graph.node:
        nodes.append(node)
        if node in products:
            result = node.output[0]
            node.input[0], node.output[0] = "words.embedded", f"{result}.unique"
            nodes.append(make("Gather", [node.output[0], "words.place"], [result]))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    graph.write_bytes(model.SerializeToString())


def consumers_of(model: Any) -> dict[str, list[Any]]:
    """The nodes that read each tensor, by its name."""
    consumers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    return consumers


def drop_unused(model: Any) -> None:
    """Remove nodes whose outputs are not read, and then weights that are not read."""
    while True:
        read = {name for node in model.graph.node for name in node.input} | {o.name for o in model.graph.output}
        unused = [node for node in model.graph.node if not read.intersection(node.output)]
        if not unused:
            break
        for node in unused:
            model.graph.node.remove(node)
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name not in read]:
        model.graph.initializer.remove(tensor)
