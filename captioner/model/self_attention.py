"""The Transformer's parts (Vaswani et al. 2017), for annotations that look at each other and for the decoder.

attend(x, k, v) = W_o [head_1; ...; head_H],  head_h = softmax(q_h k_h^T / sqrt(d)) v_h
block:  x <- x + attend(norm x),  x <- x + W_2 relu(W_1 norm x)       (norms first: Xiong et al. 2020)
waves:  position p as sin(p / 10000^(2i/d)), cos(p / 10000^(2i/d))
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.model.step_linear import dropout


class Attend(nn.Module):
    """Queries (N, T, n) look at keys and values (N, S, n), H heads at once."""

    def __init__(self, size: int, heads: int, source_size: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size)
        self.pair = nn.Linear(source_size or size, 2 * size)  # of key and value, side by side
        self.mix = nn.Linear(size, size)  # W_o

    def forward(self, x: Tensor, pairs: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The contexts (N, T, n) and the heads' maps (N, H, T, S); `pairs` are keys and values, `mask` is added."""
        keys, values = pairs.chunk(2, -1)
        q, k, v = (self._split(each) for each in (self.query(x), keys, values))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        alpha = F.softmax(scores if mask is None else scores + mask, -1)
        return self.mix((alpha @ v).transpose(1, 2).flatten(2)), alpha

    def _split(self, x: Tensor) -> Tensor:
        """(N, T, n) as (N, H, T, n / H)."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """W_2 relu(W_1 x), four times as wide inside."""

    def __init__(self, size: int, dropout: float) -> None:
        super().__init__()
        self.wide = nn.Linear(size, 4 * size)
        self.narrow = nn.Linear(4 * size, size)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(dropout(F.relu(self.wide(x)), self.dropout, self.training))  # type: ignore[no-any-return]


class EncoderBlock(nn.Module):
    """Every place looks at every place, then thinks by itself."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attend, self.attend_norm = Attend(size, heads), nn.LayerNorm(size)
        self.feed, self.feed_norm = FeedForward(size, dropout), nn.LayerNorm(size)
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        normed = self.attend_norm(x)
        x = x + dropout(self.attend(normed, self.attend.pair(normed))[0], self.dropout, self.training)
        return x + dropout(self.feed(self.feed_norm(x)), self.dropout, self.training)


def waves(position: Tensor, size: int) -> Tensor:
    """Positions (...) as vectors (..., size)."""
    index = torch.arange(-(-size // 2), dtype=position.dtype, device=position.device)
    angle = position.unsqueeze(-1) * torch.exp(index * (-2 * math.log(10000) / size))
    return torch.cat([torch.sin(angle), torch.cos(angle)], -1)[..., :size]
