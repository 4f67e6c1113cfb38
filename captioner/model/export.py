"""Torch modules to onnx graphs: the encoder's trunk, the encoder, and the decoder's `begin` and `step`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from captioner.model.encoder import Encoder

OPSET = 17


class _Trunk(nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, pixels: Tensor) -> Tensor:
        return self.encoder.trunk(pixels)


def export_trunk(encoder: Encoder, path: Path) -> None:
    """`pixels` uint8 (B, S, S, 3) to `grid` (B, C, rows, cols)."""
    side = encoder.settings.size
    pixels = torch.zeros(2, side, side, 3, dtype=torch.uint8)
    to_onnx(_Trunk(encoder), (pixels,), path, ["pixels"], ["grid"], {"pixels": {0: "B"}, "grid": {0: "B"}})


def to_onnx(
    module: nn.Module,
    arguments: tuple[Tensor, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: dict[str, dict[int, str]],
) -> None:
    """Trace and write; the TorchScript exporter needs nothing installed beside torch and onnx."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecation and tracing notes
        torch.onnx.export(
            module.eval(),
            arguments,
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )
