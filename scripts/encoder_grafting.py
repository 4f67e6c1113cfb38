"""Puts a trained decoder on another encoder: fits the layer between them, so that the decoder's inputs stay similar.

The decoder reads annotations through one layer, relu(p_i) with p_i = W a_i + b. For another encoder, with annotations
a'_i of the same cells, ridge regression over the cells of many pictures fits W' and b' to the old p_i:

    W', b' = argmin sum_i |W' a'_i + b' - (W a_i + b)|^2 + ridge |W'|^2

The other weights of the decoder stay as they are. Training then starts from a model that already writes captions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from captioner.errors import UsageError
from captioner.images.reading import load_for_model
from captioner.model.network import Network
from captioner.model.weights import load_weights

RIDGE = 0.01  # relative to the mean over channels of the sum of squares over cells


def graft(old: Network, new: Network, paths: Sequence[Path], *, batch: int = 32) -> float:
    """Give `new` the decoder of `old` with a fitted projection. Returns the share of the variance that it explains."""
    before, after = old.decoder.project, new.decoder.project
    if before is None or after is None:
        raise UsageError("a decoder without a projection (model.annotation_size) can't be moved to another encoder")
    if old.encoder.grid() != new.encoder.grid():
        raise UsageError(f"the encoders' grids differ: {old.encoder.grid()} and {new.encoder.grid()}")
    if not paths:
        raise UsageError("there is no picture to fit the layer to")
    decoder = {f"decoder.{k}": v for k, v in old.decoder.state_dict().items() if not k.startswith("project.")}
    load_weights(new, {**new.state_dict(), **decoder}, "the model's decoder")
    return _fit(after, (_cells(old, new, paths[i : i + batch]) for i in range(0, len(paths), batch)), before)


def _cells(old: Network, new: Network, paths: Sequence[Path]) -> tuple[Tensor, Tensor]:
    """The annotations of both encoders at the same cells, (N, D) and (N, D')."""
    sizes = {network.encoder.settings.size for network in (old, new)}
    pixels = {size: torch.from_numpy(np.stack([load_for_model(path, size)[1] for path in paths])) for size in sizes}
    with torch.no_grad():
        a, b = (network.encode(pixels[network.encoder.settings.size]).flatten(0, 1) for network in (old, new))
    return a.double(), b.double()


@torch.no_grad()
def _fit(layer: nn.Linear, pairs: Iterable[tuple[Tensor, Tensor]], before: nn.Linear) -> float:
    size, out = layer.in_features + 1, layer.out_features
    squares, products = torch.zeros(size, size).double(), torch.zeros(size, out).double()
    power, sums, rows = 0.0, torch.zeros(out).double(), 0
    for old, new in pairs:
        wanted = old @ before.weight.double().T + before.bias.double()
        a = torch.cat([new, new.new_ones(len(new), 1)], 1)  # the last column is for the bias
        squares += a.T @ a
        products += a.T @ wanted
        power, sums, rows = power + float(wanted.square().sum()), sums + wanted.sum(0), rows + len(a)
    ridge = RIDGE * squares.diagonal()[:-1].mean() * torch.ones(size).double()
    ridge[-1] = 0.0
    solved = torch.linalg.solve(squares + ridge.diag(), products)  # (D' + 1, out)
    layer.weight.copy_(solved[:-1].T)
    layer.bias.copy_(solved[-1])
    error = power - 2 * float((solved * products).sum()) + float((solved * (squares @ solved)).sum())
    variance = power - float(sums.square().sum()) / rows
    if variance <= 0:
        raise UsageError("all cells of these pictures have the same annotation: there is nothing to fit")
    return 1 - error / variance
