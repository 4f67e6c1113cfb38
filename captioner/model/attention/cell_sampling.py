"""Soft or hard attention: from the attention weights alpha_t to the weights w_t of the context vector.

soft    w_t = alpha_t                                          the expectation
hard    w_t = one-hot(s_t),  s_t ~ Multinoulli(alpha_t)        one sampled cell, trained by reward (model/loss.py)
gumbel  w_t = one-hot(argmax(log alpha_t + g)) in the forward pass; the backward pass has the gradient of
        softmax((log alpha_t + g) / relaxation),  g ~ Gumbel   (Jang et al. 2017, straight-through)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.model.settings import AttentionSettings


class CellChoice(NamedTuple):
    """Which rows attend to one cell, and to which. Soft attention leaves all three out."""

    sampled: Tensor | None = None  # (B, K) bool: rows that attend to one cell
    noise: Tensor | None = None  # (B, K, L): Gumbel noise; without it the likeliest cell is taken
    cell: Tensor | None = None  # (B, K): take these cells, and sample none


class CellSampling(nn.Module):
    """Soft and hard attention: sampled rows attend to one cell, the other rows to all cells."""

    learns_by_reward = True  # whether the loss rewards a cell for the words that follow it

    def forward(self, alpha: Tensor, choice: CellChoice) -> tuple[Tensor, Tensor | None]:
        """Weights with the shape of alpha, and the cells (B, K)."""
        sampled, noise, cell = choice
        if sampled is None:
            return alpha, None
        cell = select_cell(alpha, noise) if cell is None else cell
        mask = sampled.to(alpha.dtype).unsqueeze(-1)
        return mask * self.one_hot(alpha, noise, cell) + (1 - mask) * alpha, cell

    def one_hot(self, alpha: Tensor, noise: Tensor | None, cell: Tensor) -> Tensor:
        """All the weight on one cell, without a gradient."""
        return F.one_hot(cell, alpha.shape[-1]).to(alpha.dtype)


class StraightThroughSampling(CellSampling):
    """The same cells, with the gradient of the softmax whose argmax is the cell.

    A cell that is given (self-critical training) was sampled with noise that is no longer known. Its softmax has none.
    """

    learns_by_reward = False

    def __init__(self, relaxation: float) -> None:
        super().__init__()
        self.relaxation = relaxation

    def one_hot(self, alpha: Tensor, noise: Tensor | None, cell: Tensor) -> Tensor:
        hard = super().one_hot(alpha, noise, cell)
        if not alpha.requires_grad:
            return hard
        scores = torch.log(alpha.clamp_min(1e-20))
        soft = F.softmax((scores if noise is None else scores + noise) / self.relaxation, -1)
        return hard + (soft - soft.detach())


def make_cell_sampling(settings: AttentionSettings) -> CellSampling:
    return StraightThroughSampling(settings.relaxation) if settings.mode == "gumbel" else CellSampling()


def gumbel_noise(shape: tuple[int, ...], generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Noise g such that argmax(log alpha + g) is a sample of Multinoulli(alpha)."""
    # Always float32: half precision has too few numbers near 1 to sample rare cells.
    uniform = torch.rand(shape, generator=generator, dtype=torch.float32, device=device).clamp_min(1e-20)
    return -torch.log(-torch.log(uniform))


def select_cell(alpha: Tensor, noise: Tensor | None) -> Tensor:
    """The index (B, K) of the likeliest cell or, with Gumbel noise, of a sampled cell."""
    scores = torch.log(alpha.clamp_min(1e-20))
    return (scores if noise is None else scores + noise).argmax(-1)
