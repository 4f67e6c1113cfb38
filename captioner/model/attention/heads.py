"""Heads: one look at a time, or several at once whose contexts are put side by side and mixed.

    one:   z_t = sum_i w_ti a_i
    many:  z_t = W_o [z_t1; ...; z_tH],  z_th = sum_i w_thi V_h a_i       (Vaswani et al. 2017)

w is alpha, or what was drawn from it. A word's map is the mean of its heads' maps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.core import context
from captioner.model.step_linear import StepLinear


class OneHead(nn.Module):
    """The annotations themselves are the values, and alpha is the map."""

    def values(self, annotations: Tensor) -> Tensor:
        """What contexts are sums of, (B, L, D), once an image."""
        return annotations

    def map(self, alpha: Tensor) -> Tensor:
        """Where a word looked, (B, K, L)."""
        return alpha

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """z_t (B, K, D) for weights (B, K, L)."""
        return context(weights, values)


class ManyHeads(OneHead):
    """H heads with values of width D / H; weights and alpha are (B, K, H, L)."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        if size % heads:  # known before only where the annotations are projected
            raise CaptionerError(
                f"model.attention.heads={heads} does not divide annotations of width {size}; set model.annotation_size "
                "to a width that it divides"
            )
        self.count = heads
        self.value = nn.Linear(size, size, bias=False)  # V_1 ... V_H
        self.mix = StepLinear(size, size)  # W_o

    def values(self, annotations: Tensor) -> Tensor:
        return self.value(annotations)  # type: ignore[no-any-return]

    def map(self, alpha: Tensor) -> Tensor:
        return alpha.mean(2)

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        parts = enumerate(values.chunk(self.count, -1))
        return self.mix(torch.cat([context(weights[:, :, h], part) for h, part in parts], -1))  # type: ignore[no-any-return]
