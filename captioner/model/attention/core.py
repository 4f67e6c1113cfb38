"""Attention: where to look before the next word (Xu et al. 2015, section 4).

    e_ti     = w . tanh(W_a a_i + W_h h_{t-1} + b)      score of place i
    alpha_t  = softmax_i(e_ti / temperature)            weight of place i
    soft:  z_t = sum_i alpha_ti a_i                     the expectation
    hard:  s_t ~ Multinoulli(alpha_t),  z_t = a_{s_t}   one sampled place

W_a a_i + b depends neither on the word nor on the caption: `keys` computes it once per image.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from captioner.model.step_linear import StepLinear


@dataclass(frozen=True)
class Glance:
    """Where one step looked."""

    alpha: Tensor  # (B, K, L)
    gate: Tensor  # (B, K)
    place: Tensor | None = None  # (B, K): the chosen place; None where the context is the expectation
    chosen: Tensor | None = None  # (B, K) bool: rows whose context is the chosen place, not the expectation


class Score(nn.Module):
    """e_ti of all places, for all captions of an image at once; the other kinds are in mechanisms/scores.py."""

    def keys(self, annotations: Tensor) -> Tensor:
        """The annotations' share of the score, (B, L, ...), once an image."""
        raise NotImplementedError

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        """Scores (B, K, L) for hidden states (B, K, n); of several heads (B, K, H, L)."""
        raise NotImplementedError


class AdditiveScore(Score):
    """e_ti = w . tanh(W_a a_i + W_h h + b)."""

    def __init__(self, annotation_size: int, hidden_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size)  # W_a, b
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        self.weight = nn.Linear(size, 1, bias=False)  # w

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        query = self.query(hidden).unsqueeze(2)  # (B, K, 1, A)
        return self.weight((keys.unsqueeze(1) + query).tanh_()).squeeze(-1)  # type: ignore[no-any-return]


def context(weights: Tensor, annotations: Tensor) -> Tensor:
    """z_t (B, K, D) = sum_i w_ti a_i for weights (B, K, L) and annotations (B, L, D)."""
    return torch.bmm(weights, annotations)


def gumbel(shape: tuple[int, ...], generator: torch.Generator | None, like: Tensor) -> Tensor:
    """Noise g on `like`'s device, such that argmax(log alpha + g) is a sample of Multinoulli(alpha)."""
    # float32 whatever the annotations are: half precision has too few numbers near 1 to draw rare places.
    uniform = torch.rand(shape, generator=generator, dtype=torch.float32, device=like.device).clamp_min(1e-20)
    return -torch.log(-torch.log(uniform))


def choose(alpha: Tensor, noise: Tensor | None) -> Tensor:
    """The chosen place (B, K) as an index: the likeliest, or with Gumbel noise a sample."""
    scores = torch.log(alpha.clamp_min(1e-20))
    return (scores if noise is None else scores + noise).argmax(-1)
