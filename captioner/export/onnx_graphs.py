"""Torch modules as ONNX graphs: the encoder, the decoder's `begin` and `step`, and the trunk (for caching).

The graphs of a bundle contain no weights. They point into `model.safetensors` beside them, where matrices are float16
and are converted to float32 when a graph is loaded. So a bundle has every weight once.

`onnx_backend` documents the graphs. Their input and output names are part of the bundle format: `chosen` is the
decoder's argument `sampled`, and `place` is the attention's `cell`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from captioner.bundle.layout import BEGIN, DECODER, ENCODER, WEIGHTS
from captioner.export.graph_edits import merge_equal_words, merge_padding, point_at_weights
from captioner.model.caption_decoder import CaptionDecoder, Tensors, expand_state
from captioner.model.encoder import Encoder
from captioner.model.network import Network
from captioner.model.weights import ENCODER_PREFIX

OPSET = 17
GRAPHS = (ENCODER, BEGIN, DECODER)
Axes = dict[str, dict[int, str]]  # names of the axes of variable size, by tensor and position


def export_graphs(network: Network, folder: Path, *, encoder: bool = True) -> None:
    """Write model.safetensors, encoder.onnx, begin.onnx and decoder.onnx into a folder; `encoder`: with the encoder."""
    from safetensors.torch import save_file

    network = network.cpu().eval()
    state = stored_tensors(network)
    if not encoder:
        state = {name: tensor for name, tensor in state.items() if not name.startswith(ENCODER_PREFIX)}
    save_file(state, folder / WEIGHTS)
    size = network.encoder.settings.size
    pixels = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    with torch.no_grad():
        annotations = network.encode(pixels)
        shared, own = network.decoder.begin(annotations)
    if encoder:
        _export_encoder(network, pixels, folder / ENCODER)
    _export_begin(network, annotations, [*_names("shared", shared), *_names("own", own)], folder / BEGIN)
    _export_step(network, shared, own, cells=annotations.shape[1], path=folder / DECODER)
    for name in GRAPHS if encoder else (BEGIN, DECODER):
        point_at_weights(folder / name, folder / WEIGHTS)


def stored_tensors(network: Network) -> Tensors:
    """The weights as a bundle has them: matrices in half precision; the few vectors (biases, batch norms) are exact."""
    state = {k: (v.half() if v.dim() > 1 else v).detach().clone().contiguous() for k, v in network.state_dict().items()}
    if network.decoder.settings.tied:
        del state["decoder.output.weight"]  # the same matrix as decoder.embedding.weight
    return state


def _export_encoder(network: Network, pixels: Tensor, path: Path) -> None:
    axes: Axes = {"pixels": {0: "B"}, "annotations": {0: "B"}}
    to_onnx(_Encoder(network), (pixels,), path, ["pixels"], ["annotations"], axes)
    merge_padding(path, pixels[:1].numpy())


def _export_begin(network: Network, annotations: Tensor, outputs: list[str], path: Path) -> None:
    axes: Axes = {name: {0: "B"} for name in ("annotations", *outputs)}
    to_onnx(_Begin(network), (annotations,), path, ["annotations"], outputs, axes)


def _export_step(network: Network, shared: Tensors, own: Tensors, *, cells: int, path: Path) -> None:
    """Trace one step with 2 images and 3 hypotheses."""
    rows = {0: "B", 1: "K"}
    own = {name: tensor.contiguous() for name, tensor in expand_state(own, 3).items()}
    inputs = {"words": torch.full((2, 3), 1)}
    inputs |= dict(zip(_names("shared", shared), shared.values(), strict=True))
    inputs |= dict(zip(_names("own", own), own.values(), strict=True))
    outputs = ["log_probabilities", "alpha", "gate", *_names("next", own)]
    axes: Axes = dict.fromkeys(["words", *_names("own", own), *outputs], rows)
    axes |= {name: {0: "B"} for name in _names("shared", shared)}
    for name in network.decoder.growing:  # by one per word
        axes |= {f"own.{name}": {**rows, 2: "T"}, f"next.{name}": {**rows, 2: "T_next"}}
    if network.decoder.hard:
        inputs |= {"noise": torch.zeros(2, 3, cells), "chosen": torch.tensor(1.0)}
        outputs.insert(3, "place")
        axes |= {"noise": rows, "place": rows}
    to_onnx(_Step(network, list(shared), list(own)), tuple(inputs.values()), path, list(inputs), outputs, axes)
    merge_equal_words(path)


def _names(prefix: str, tensors: Tensors) -> list[str]:
    return [f"{prefix}.{name}" for name in tensors]


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
    """One step, with the tensors of the state as positional arguments in the order of their names."""

    def __init__(self, network: Network, shared: list[str], own: list[str]) -> None:
        super().__init__()
        self.decoder: CaptionDecoder = network.decoder
        self.shared, self.own = shared, own

    def forward(self, words: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        shared = dict(zip(self.shared, tensors, strict=False))
        own = dict(zip(self.own, tensors[len(self.shared) :], strict=False))
        hard: dict[str, Tensor] = {}
        if self.decoder.hard:
            noise, chosen = tensors[-2:]
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
    """A graph from `pixels` uint8 (B, S, S, 3) to `grid` (B, C, rows, cols), which contains its weights."""
    size = encoder.settings.size
    pixels = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    axes: Axes = {"pixels": {0: "B"}, "grid": {0: "B"}}
    to_onnx(_Trunk(encoder), (pixels,), path, ["pixels"], ["grid"], axes, fold=True)
    merge_padding(path, pixels[:1].numpy())


def to_onnx(
    module: nn.Module,
    arguments: tuple[Tensor, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Axes,
    *,
    fold: bool = False,
) -> None:
    """Trace a module and write its graph. Without `fold` weights keep their names, and onnxruntime folds constants."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecation and tracing warnings of the exporter itself
        torch.onnx.export(
            module.eval(),
            arguments,
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            do_constant_folding=fold,
            # PRESERVE does not merge batch norms into convolutions, so every weight keeps its name.
            training=torch.onnx.TrainingMode.EVAL if fold else torch.onnx.TrainingMode.PRESERVE,
            dynamo=False,
        )
