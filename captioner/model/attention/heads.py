"""Heads: one context vector, or several that are concatenated and mixed.

    one:   z_t = sum_i w_ti a_i
    many:  z_t = W_o [z_t1; ...; z_tH],  z_th = sum_i w_thi V_h a_i       (Vaswani et al. 2017)

The weights w are alpha, or the cell sampled from it. The attention map of a word is the mean over its heads.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.step_linear import StepLinear, StepProduct


class OneHead(nn.Module):
    """The annotations themselves are the values, and alpha is the map."""

    def __init__(self) -> None:
        super().__init__()
        self.product = StepProduct()

    def values(self, annotations: Tensor) -> Tensor:
        """The values (B, L, D) that context vectors are sums of. They are computed once per image."""
        return annotations

    def map(self, alpha: Tensor) -> Tensor:
        """The attention map of a word, (B, K, L)."""
        return alpha

    def forward(self, weights: Tensor, values: Tensor) -> Tensor:
        """z_t (B, K, D) for weights (B, K, L)."""
        return self.product(weights, values)  # type: ignore[no-any-return]


class ManyHeads(OneHead):
    """H heads with values of width D / H. Weights and alpha are (B, K, H, L)."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        if size % heads:  # the settings can check this only where the annotations are projected
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
        contexts = [torch.bmm(weights[:, :, h], value) for h, value in enumerate(values.chunk(self.count, -1))]
        return self.mix(torch.cat(contexts, -1))  # type: ignore[no-any-return]
