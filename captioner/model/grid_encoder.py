"""Grid encoders: layers that the annotations pass before the decoder attends to them, (B, L, D) to (B, L, D).

none            a_i, which depends on its neighbourhood but not on its position
positions       a_i + [positions(row_i); positions(col_i)], of sines and cosines
lstm            [forward LSTM; backward LSTM] over the cells, row by row
self_attention  positions, then Transformer blocks in which every cell attends to every cell, then a layer norm
"""

from __future__ import annotations

from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.self_attention import EncoderBlock, encode_grid_positions
from captioner.model.settings import ModelSettings

Grid = tuple[int, int]  # rows and columns


class NoGridEncoder(nn.Module):
    def forward(self, annotations: Tensor) -> Tensor:
        return annotations


class PositionEncoding(NoGridEncoder):
    """Adds its row and column to every annotation."""

    positions: Tensor  # (L, D)

    def __init__(self, size: int, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        self.register_buffer("positions", encode_grid_positions(*grid, size), persistent=False)

    def forward(self, annotations: Tensor) -> Tensor:
        if annotations.shape[1] != len(self.positions):
            rows, cols = self.grid
            raise CaptionerError(f"{annotations.shape[1]} annotations do not fit a grid of {rows}x{cols}")
        return annotations + self.positions


class BidirectionalLSTM(NoGridEncoder):
    """Every cell depends on all cells before it and on all cells after it, row by row."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(size, size // 2, batch_first=True, bidirectional=True)

    def forward(self, annotations: Tensor) -> Tensor:
        return self.lstm(annotations)[0]  # type: ignore[no-any-return]


class SelfAttentionEncoder(NoGridEncoder):
    def __init__(self, size: int, grid: Grid, layers: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.positions = PositionEncoding(size, grid)
        self.blocks = nn.ModuleList(EncoderBlock(size, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, annotations: Tensor) -> Tensor:
        x = self.positions(annotations)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)  # type: ignore[no-any-return]


def make_grid_encoder(settings: ModelSettings, size: int, grid: Grid | None) -> NoGridEncoder:
    kind = settings.grid_encoder
    if kind == "none":
        return NoGridEncoder()
    parts = {"lstm": 2, "self_attention": settings.grid_encoder_heads}.get(kind, 1)
    if size % parts:  # the settings can check this only where the annotations are projected
        raise CaptionerError(
            f"model.grid_encoder={kind} splits annotations into {parts} parts, and a width of {size} can't be divided "
            f"by {parts}; set model.annotation_size to a multiple of {parts}"
        )
    if kind == "lstm":
        return BidirectionalLSTM(size)
    if grid is None:
        raise CaptionerError(f"model.grid_encoder={kind} needs the rows and columns of the grid")
    if kind == "positions":
        return PositionEncoding(size, grid)
    layers, heads, dropout = settings.grid_encoder_layers, settings.grid_encoder_heads, settings.annotation_dropout
    return SelfAttentionEncoder(size, grid, layers, heads, dropout)
