"""Contexts: what the annotations tell each other before the decoder reads them, (B, L, D) to (B, L, D).

none            a_i as the encoder gives it, which knows its neighbourhood and not its place
positions       a_i + [waves(row_i); waves(col_i)]
lstm            [forward LSTM; backward LSTM] over the places, row by row
self_attention  positions, then Transformer blocks in which every place looks at every other, then a layer norm
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.self_attention import EncoderBlock, waves
from captioner.model.settings import ModelSettings

Grid = tuple[int, int]


class NoContext(nn.Module):
    def forward(self, annotations: Tensor) -> Tensor:
        return annotations


class Positions(NoContext):
    """Half of the width tells the row, the other half the column."""

    rows: Tensor
    cols: Tensor

    def __init__(self, size: int, grid: Grid) -> None:
        super().__init__()
        for name, count, width in (("rows", grid[0], size // 2), ("cols", grid[1], size - size // 2)):
            self.register_buffer(name, waves(torch.arange(float(count)), width), persistent=False)

    def forward(self, annotations: Tensor) -> Tensor:
        rows, cols = len(self.rows), len(self.cols)
        if annotations.shape[1] != rows * cols:
            raise CaptionerError(f"{annotations.shape[1]} annotations are no grid of {rows}x{cols}")
        down = self.rows.unsqueeze(1).expand(-1, cols, -1)
        across = self.cols.unsqueeze(0).expand(rows, -1, -1)
        return annotations + torch.cat([down, across], -1).flatten(0, 1)


class LSTMContext(NoContext):
    """A place hears of all places before it, and of all after it, in the order of reading."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size // 2, batch_first=True, bidirectional=True)

    def forward(self, annotations: Tensor) -> Tensor:
        return self.lstm(annotations)[0]  # type: ignore[no-any-return]


class SelfAttentionContext(NoContext):
    def __init__(self, size: int, grid: Grid, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.positions = Positions(size, grid)
        self.blocks = nn.ModuleList(EncoderBlock(size, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, annotations: Tensor) -> Tensor:
        x = self.positions(annotations)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)  # type: ignore[no-any-return]


def make_context(settings: ModelSettings, size: int, grid: Grid | None) -> NoContext:
    if settings.context == "none":
        return NoContext()
    heads = 2 if settings.context == "lstm" else settings.context_heads if settings.context == "self_attention" else 1
    if size % heads:  # known before only where the annotations are projected
        raise CaptionerError(
            f"model.context={settings.context} cuts annotations into {heads}, and {size} wide ones don't divide; "
            "set model.annotation_size to a width that does"
        )
    if settings.context == "lstm":
        return LSTMContext(size)
    if grid is None:
        raise CaptionerError(f"model.context={settings.context} needs the rows and columns of the grid")
    if settings.context == "positions":
        return Positions(size, grid)
    layers, dropout = settings.context_layers, settings.annotation_dropout
    return SelfAttentionContext(size, grid, layers, settings.context_heads, dropout)
