"""The visual sentinel, after adaptive attention (Lu et al. 2017): one more place, which is not in the picture.

    s_t       = W (sigmoid(W_s h) * tanh(c))              what the LSTM's memory c has to say
    nowhere_t = exp(e_ts) / (exp(e_ts) + sum_i exp(e_ti))  its weight, among the places'
    z_t       = (1 - nowhere_t) beta_t z_t + nowhere_t s_t

e_ts is the score of s_t as if it were an annotation. So "of" may look nowhere. The gate told of a step is
(1 - nowhere_t) beta_t: how much of the picture counts. With heads nowhere_t is the mean of theirs. The e_ti know of
coverage, but not of where the Neural Turing Machine's addressing shifts the map afterwards; and a hard model draws
among the picture's places alone, s_t is always mixed in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.model.attention.core import Score
from captioner.model.step_linear import StepLinear


class NoSentinel(nn.Module):
    """Every look is at the picture."""

    def forward(
        self, z: Tensor, gate: Tensor, query: Tensor, memory: Tensor, scores: Tensor, score: Score
    ) -> tuple[Tensor, Tensor]:
        """The context and the gate after it, for the places' scores and what makes them."""
        return z, gate


class Sentinel(NoSentinel):
    def __init__(self, hidden_size: int, size: int, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature  # that the places' scores were divided by
        self.gate = StepLinear(hidden_size, hidden_size)  # W_s
        self.project = StepLinear(hidden_size, size)  # W

    def forward(
        self, z: Tensor, gate: Tensor, query: Tensor, memory: Tensor, scores: Tensor, score: Score
    ) -> tuple[Tensor, Tensor]:
        s = self.project(torch.sigmoid(self.gate(query)) * torch.tanh(memory))  # (B, K, D)
        # Every hypothesis has a sentinel of its own: score it as the one place of an image of its own.
        keys = score.keys(s.flatten(0, 1).unsqueeze(1))
        own = score(keys, query.flatten(0, 1).unsqueeze(1)).reshape(scores.shape[:-1])  # (B, K) or (B, K, H)
        nowhere = torch.sigmoid(own / self.temperature - torch.logsumexp(scores, -1))
        nowhere = nowhere.flatten(2).mean(2) if nowhere.dim() > 2 else nowhere
        part = nowhere.unsqueeze(-1)
        return (1 - part) * z + part * s, (1 - nowhere) * gate
