"""Draws: from the map alpha_t to the weights of the places.

soft    w_t = alpha_t                                          the expectation
hard    w_t = one-hot(s_t),  s_t ~ Multinoulli(alpha_t)        one place; learns by reward (model/objective.py)
gumbel  w_t = one-hot(argmax(log alpha_t + g)) forwards, and backwards the gradient of
        softmax((log alpha_t + g) / relaxation),  g ~ Gumbel   (Jang et al. 2017, straight-through)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.model.attention.core import choose
from captioner.model.settings import AttentionSettings


class Draw(nn.Module):
    """Soft and hard: rows marked as chosen look at one place, all others everywhere."""

    rewarded = True  # whether places learn by what the words after them are worth

    def forward(
        self, alpha: Tensor, chosen: Tensor | None, noise: Tensor | None, place: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights like alpha and the places (B, K); `place` is looked at in place of drawing one."""
        if chosen is None:
            return alpha, None
        place = choose(alpha, noise) if place is None else place
        mask = chosen.to(alpha.dtype).unsqueeze(-1)
        return mask * self.single(alpha, noise, place) + (1 - mask) * alpha, place

    def single(self, alpha: Tensor, noise: Tensor | None, place: Tensor) -> Tensor:
        """All the weight at the place; no gradient."""
        return F.one_hot(place, alpha.shape[-1]).to(alpha.dtype)


class StraightThrough(Draw):
    """The same places; gradients go through the softmax that the place is the argmax of.

    Where the place was drawn before (the self-critical stage), its noise is gone, and the softmax is without it.
    """

    rewarded = False

    def __init__(self, relaxation: float) -> None:
        super().__init__()
        self.relaxation = relaxation

    def single(self, alpha: Tensor, noise: Tensor | None, place: Tensor) -> Tensor:
        one = super().single(alpha, noise, place)
        if not alpha.requires_grad:
            return one
        scores = torch.log(alpha.clamp_min(1e-20))
        soft = F.softmax((scores if noise is None else scores + noise) / self.relaxation, -1)
        return one + (soft - soft.detach())


def make_draw(settings: AttentionSettings) -> Draw:
    return StraightThrough(settings.relaxation) if settings.mode == "gumbel" else Draw()
