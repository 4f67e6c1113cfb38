"""Torch modules to onnx graphs: the encoder, the decoder's `begin` and `step`; and the trunk, for caching.

A bundle's graphs hold no weights of their own: they point into `model.safetensors` beside them, where
matrices are float16 and are widened to float32 when the graph is loaded. So a bundle has every weight once.
"""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from captioner.bundle import storage as bundle
from captioner.model.caption_decoder import CaptionDecoder
from captioner.model.encoder import Encoder
from captioner.model.network import Network

OPSET = 17
WEIGHTS = bundle.WEIGHTS
_TYPES = {"F32": 1, "F16": 10, "I64": 7}  # safetensors' names for onnx's element types


def export_graphs(network: Network, folder: Path) -> None:
    """Write model.safetensors, encoder.onnx, begin.onnx and decoder.onnx into a folder."""
    from safetensors.torch import save_file

    network = network.cpu().eval()
    # Matrices in half precision; the few vectors (biases, batch norms) stay exact.
    state = {k: (v.half() if v.dim() > 1 else v).detach().clone().contiguous() for k, v in network.state_dict().items()}
    if network.decoder.settings.tied:
        del state["decoder.output.weight"]  # the same matrix as decoder.embedding.weight
    save_file(state, folder / WEIGHTS)
    settings = network.encoder.settings
    pixels = torch.zeros(2, settings.size, settings.size, 3, dtype=torch.uint8)
    axes: dict[str, dict[int, str]] = {"pixels": {0: "B"}, "annotations": {0: "B"}}
    to_onnx(_Encoder(network), (pixels,), folder / "encoder.onnx", ["pixels"], ["annotations"], axes)
    _merge_padding(folder / "encoder.onnx", pixels)
    with torch.no_grad():
        annotations = network.encode(pixels)
        shared, own = network.decoder.begin(annotations)
    shared_names, own_names = [f"shared.{k}" for k in shared], [f"own.{k}" for k in own]
    begun = [*shared_names, *own_names]
    axes = {name: {0: "B"} for name in ("annotations", *begun)}
    to_onnx(_Begin(network), (annotations,), folder / "begin.onnx", ["annotations"], begun, axes)
    both = {0: "B", 1: "K"}
    words = torch.full((2, 3), 1)
    values = [*shared.values(), *(v.expand(-1, 3, *v.shape[2:]).contiguous() for v in own.values())]
    inputs = ["words", *shared_names, *own_names]
    outputs = ["log_probabilities", "alpha", "gate", *(f"next.{k}" for k in own)]
    axes = {"words": both, "log_probabilities": both, "alpha": both, "gate": both}
    axes |= {name: {0: "B"} for name in shared_names} | dict.fromkeys(own_names, both)
    axes |= {f"next.{k}": both for k in own}
    for name in network.decoder.growing:  # by one with every word
        axes |= {f"own.{name}": {**both, 2: "T"}, f"next.{name}": {**both, 2: "T_next"}}
    if network.decoder.hard:
        values += [torch.zeros(2, 3, annotations.shape[1]), torch.tensor(1.0)]
        inputs += ["noise", "chosen"]
        outputs.insert(3, "place")
        axes |= {"noise": both, "place": both}
    step = _Step(network, list(shared), list(own))
    to_onnx(step, (words, *values), folder / "decoder.onnx", inputs, outputs, axes)
    for name in ("encoder.onnx", "begin.onnx", "decoder.onnx"):
        point_at_weights(folder / name, folder / WEIGHTS)


class _Encoder(nn.Module):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self.encoder = network.encoder

    def forward(self, pixels: Tensor) -> Tensor:
        return self.encoder(pixels)[0]  # type: ignore[no-any-return]


class _Begin(nn.Module):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self.decoder = network.decoder

    def forward(self, annotations: Tensor) -> tuple[Tensor, ...]:
        shared, own = self.decoder.begin(annotations)
        return (*shared.values(), *own.values())


class _Step(nn.Module):
    """One step with the state as plain arguments, in the order of the names."""

    def __init__(self, network: Network, shared: list[str], own: list[str]) -> None:
        super().__init__()
        self.decoder: CaptionDecoder = network.decoder
        self.shared, self.own = shared, own

    def forward(self, words: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        shared = dict(zip(self.shared, values, strict=False))
        own = dict(zip(self.own, values[len(self.shared) :], strict=False))
        hard: dict[str, Tensor] = {}
        if self.decoder.hard:
            noise, chosen = values[-2:]
            hard = {"noise": noise, "sampled": chosen.expand_as(words)}
        logits, own, attention = self.decoder.step(shared, own, words, **hard)
        place = (attention.cell,) if attention.cell is not None else ()
        return (torch.log_softmax(logits, -1), attention.alpha, attention.gate, *place, *(own[k] for k in self.own))


class _Trunk(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixels: Tensor) -> Tensor:
        return self.encoder.trunk(pixels)


def export_trunk(encoder: Encoder, path: Path) -> None:
    """`pixels` uint8 (B, S, S, 3) to `grid` (B, C, rows, cols), with its weights inside."""
    side = encoder.settings.size
    pixels = torch.zeros(2, side, side, 3, dtype=torch.uint8)
    axes = {"pixels": {0: "B"}, "grid": {0: "B"}}
    to_onnx(_Trunk(encoder), (pixels,), path, ["pixels"], ["grid"], axes, fold=True)
    _merge_padding(path, pixels)


def to_onnx(
    module: nn.Module,
    arguments: tuple[Tensor, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: dict[str, dict[int, str]],
    *,
    fold: bool = False,
) -> None:
    """Trace and write. Unless folded, weights keep their names; onnxruntime folds them when it loads the graph."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own deprecation and tracing notes
        torch.onnx.export(
            module.eval(),
            arguments,
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            do_constant_folding=fold,
            # PRESERVE keeps batch norms apart from convolutions, and so every weight under its own name.
            training=torch.onnx.TrainingMode.EVAL if fold else torch.onnx.TrainingMode.PRESERVE,
            dynamo=False,
        )


def point_at_weights(graph: Path, weights: Path) -> None:
    """Replace a graph's weights by pointers into the safetensors file, widened where they are stored in half."""
    import onnx
    from safetensors.numpy import load_file

    with weights.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        records: dict[str, Any] = json.loads(file.read(length))
    stored = load_file(weights)
    model = onnx.load(str(graph))
    kept, nodes = [], []
    for tensor in model.graph.initializer:
        # A tied output layer is stored once, as the embedding; what is not stored is a constant, not a weight.
        name = tensor.name
        if name not in stored:
            name = name.replace("decoder.output.weight", "decoder.embedding.weight")
        # onnxruntime, which prepares the 8-bit graphs, may turn a tensor around and leave it its name.
        if name not in stored or not _same(onnx.numpy_helper.to_array(tensor), stored[name]):
            kept.append(tensor)
            continue
        record = records[name]
        begin, end = record["data_offsets"]
        half = record["dtype"] == "F16"
        pointer = onnx.TensorProto(
            name=f"{tensor.name}.stored" if half else tensor.name,
            data_type=_TYPES[record["dtype"]],
            dims=record["shape"],
            data_location=onnx.TensorProto.EXTERNAL,
        )
        for key, value in (("location", weights.name), ("offset", 8 + length + begin), ("length", end - begin)):
            pointer.external_data.add(key=key, value=str(value))
        kept.append(pointer)
        if half:
            nodes.append(onnx.helper.make_node("Cast", [pointer.name], [tensor.name], to=onnx.TensorProto.FLOAT))
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    graph.write_bytes(model.SerializeToString())


def _same(tensor: NDArray[Any], stored: NDArray[Any]) -> bool:
    return tensor.shape == stored.shape and np.array_equal(tensor.astype(stored.dtype), stored)


def _merge_padding(graph: Path, pixels: Tensor) -> None:
    """Let convolutions pad their own input, by as much as the Pad nodes before them do: a sixth less time.

    A Pad node between two convolutions makes onnxruntime leave its blocked layout and come back to it.
    """
    import onnx
    import onnxruntime

    model = onnx.load(str(graph))
    users: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    pads = [
        node
        for node in model.graph.node
        if node.op_type == "Pad" and all(user.op_type == "Conv" for user in users.get(node.output[0], []))
    ]
    if not pads:
        return
    # The exporter writes the amounts as a computation on constants: let it be computed.
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    asked.graph.output.extend(onnx.ValueInfoProto(name=node.input[1]) for node in pads)
    session = onnxruntime.InferenceSession(asked.SerializeToString(), providers=["CPUExecutionProvider"])
    amounts = session.run([node.input[1] for node in pads], {"pixels": pixels[:1].numpy()})
    for node, (_, _, top, left, _, _, bottom, right) in zip(pads, amounts, strict=True):
        for convolution in users[node.output[0]]:
            own = next(attribute for attribute in convolution.attribute if attribute.name == "pads")
            own.ints[:] = [a + int(b) for a, b in zip(own.ints, (top, left, bottom, right), strict=True)]
            convolution.input[0] = node.input[0]
    drop_unused(model)
    graph.write_bytes(model.SerializeToString())


def drop_unused(model: Any) -> None:
    """Remove the nodes whose results nobody takes, and then the weights that nobody reads."""
    while True:
        taken = {name for node in model.graph.node for name in node.input} | {o.name for o in model.graph.output}
        unused = [node for node in model.graph.node if not taken.intersection(node.output)]
        if not unused:
            break
        for node in unused:
            model.graph.node.remove(node)
    for tensor in [each for each in model.graph.initializer if each.name not in taken]:
        model.graph.initializer.remove(tensor)
