"""Pooling: all annotations as one vector, from which the first state of the LSTM is computed.

mean       sum_i a_i / L                                                 (Xu et al. 2015)
attention  sum_i alpha_i a_i,  alpha = softmax_i(q . a_i / sqrt(D)),  q a learned vector
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MeanPool(nn.Module):
    def forward(self, annotations: Tensor) -> Tensor:
        """(B, 1, D) from (B, L, D)."""
        return annotations.mean(1, keepdim=True)


class AttentionPool(MeanPool):
    """Attention with one learned query for all pictures."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(size) * size**-0.5)

    def forward(self, annotations: Tensor) -> Tensor:
        scores = annotations @ self.query * len(self.query) ** -0.5  # (B, L)
        return torch.softmax(scores, -1).unsqueeze(1) @ annotations
