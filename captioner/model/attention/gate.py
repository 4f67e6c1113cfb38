"""The gate: how much of the context vector counts, beta_t = sigmoid(f_beta(h))  (Xu et al. 2015, section 4.2.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class NoGate(nn.Module):
    """beta_t = 1."""

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, K, 1) for states (B, K, n)."""
        return torch.ones_like(hidden[..., :1])


class Gate(nn.Linear):  # f_beta
    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.sigmoid(super().forward(hidden))
