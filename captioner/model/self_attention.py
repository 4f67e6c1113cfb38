"""Layers of the Transformer (Vaswani et al. 2017), for the grid encoder and for the Transformer decoder.

attention:  W_o [head_1; ...; head_H],  head_h = softmax(q_h k_h^T / sqrt(d)) v_h
block:      x <- x + attention(norm x),  x <- x + W_2 relu(W_1 norm x)       (norms first: Xiong et al. 2020)
positions:  p as sin(p / 10000^(2i/d)), cos(p / 10000^(2i/d))
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.model.fast_cpu import attend, dropout


class MultiHeadAttention(nn.Module):
    """Queries (N, T, n) attend to keys and values (N, S, n), with H heads."""

    def __init__(self, size: int, heads: int, source_size: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.pair = nn.Linear(source_size or size, 2 * size)  # keys and values, concatenated
        self.mix = nn.Linear(size, size)  # W_o

    def forward(self, x: Tensor, pairs: Tensor, *, causal: bool = False) -> Tensor:
        """(N, T, n) for the keys and values `pairs` (N, S, 2n). With `causal`, no word attends to a later one."""
        heads = attend(*self._split(x, pairs), causal=causal)
        return self.mix(heads.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def with_map(self, x: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """The same, with the attention weights (N, H, T, S), which F.scaled_dot_product_attention does not return."""
        q, k, v = self._split(x, pairs)
        alpha = F.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]), -1)
        return self.mix((alpha @ v).transpose(1, 2).flatten(2)), alpha

    def _split(self, x: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values per head, (N, H, T, n / H) and (N, H, S, n / H)."""
        keys, values = pairs.chunk(2, -1)
        q, k, v = (y.view(*y.shape[:2], self.heads, -1).transpose(1, 2) for y in (self.query(x), keys, values))
        return q, k, v


class FeedForward(nn.Module):
    """W_2 relu(W_1 x), with a hidden layer of four times the width."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.wide = nn.Linear(size, 4 * size)
        self.narrow = nn.Linear(4 * size, size)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(dropout(F.relu(self.wide(x)), self.dropout, self.training))  # type: ignore[no-any-return]


class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward layer."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attend, self.attend_norm = MultiHeadAttention(size, heads), nn.LayerNorm(size)
        self.feed, self.feed_norm = FeedForward(size, dropout), nn.LayerNorm(size)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        normed = self.attend_norm(x)
        x = x + dropout(self.attend(normed, self.attend.pair(normed)), self.dropout, self.training)
        return x + dropout(self.feed(self.feed_norm(x)), self.dropout, self.training)


def encode_positions(position: Tensor, size: int) -> Tensor:
    """Positions (...) as vectors (..., size) of sines and cosines."""
    index = torch.arange(-(-size // 2), dtype=position.dtype, device=position.device)
    angle = position.unsqueeze(-1) * torch.exp(index * (-2 * math.log(10000) / size))
    return torch.cat([torch.sin(angle), torch.cos(angle)], -1)[..., :size]


def encode_grid_positions(rows: int, cols: int, size: int) -> Tensor:
    """(rows * cols, size): half of the width encodes the row of a cell, the other half its column."""
    row = encode_positions(torch.arange(float(rows)), size // 2)
    col = encode_positions(torch.arange(float(cols)), size - size // 2)
    return torch.cat([row.unsqueeze(1).expand(-1, cols, -1), col.unsqueeze(0).expand(rows, -1, -1)], -1).flatten(0, 1)
