"""The visual sentinel, after adaptive attention (Lu et al. 2017): one more cell, which is not in the picture.

    s_t       = W (sigmoid(W_s h) * tanh(c))               a vector computed from the memory c of the LSTM
    nowhere_t = softmax([e_t1, ..., e_tL, e_ts])_s         its attention weight, beside those of the cells
    z_t       = (1 - nowhere_t) beta_t z_t + nowhere_t s_t

e_ts is the score of s_t, as if it were an annotation. With another normalizer, nowhere_t is that one's last weight. A
word such as "of" can attend to the sentinel instead of the picture. The gate reported for a step is
(1 - nowhere_t) beta_t: how much of the picture counts. With several heads, nowhere_t is their mean. The scores e_ti
include coverage, but not the shifts of the Neural Turing Machine's addressing, which come after the softmax. A hard
model samples among the cells of the picture only; s_t is always mixed in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.model.attention.normalizers import Normalizer, softmax
from captioner.model.attention.scores import Score
from captioner.model.step_linear import StepLinear


class NoSentinel(nn.Module):
    """All attention is on the picture."""

    def forward(
        self, z: Tensor, gate: Tensor, hidden: Tensor, memory: Tensor, scores: Tensor, score: Score
    ) -> tuple[Tensor, Tensor]:
        """The context vector and the gate with the sentinel mixed in; `score` computed the `scores` of the cells."""
        return z, gate


class Sentinel(NoSentinel):
    def __init__(self, hidden_size: int, size: int, temperature: float, normalize: Normalizer = softmax) -> None:
        super().__init__()
        self.normalize = normalize
        self.temperature = temperature  # the scores of the cells have been divided by it
        self.gate = StepLinear(hidden_size, hidden_size)  # W_s
        self.project = StepLinear(hidden_size, size)  # W

    def forward(
        self, z: Tensor, gate: Tensor, hidden: Tensor, memory: Tensor, scores: Tensor, score: Score
    ) -> tuple[Tensor, Tensor]:
        s = self.project(torch.sigmoid(self.gate(hidden)) * torch.tanh(memory))  # (B, K, D)
        # Every hypothesis has its own sentinel. It is scored as the only cell of an image with one hypothesis.
        keys = score.keys(s.flatten(0, 1).unsqueeze(1))
        e_s = score(keys, hidden.flatten(0, 1).unsqueeze(1)).reshape(scores.shape[:-1])  # (B, K) or (B, K, H)
        nowhere = self.normalize(torch.cat([scores, (e_s / self.temperature).unsqueeze(-1)], -1))[..., -1]
        nowhere = nowhere.flatten(2).mean(2) if nowhere.dim() > 2 else nowhere
        share = nowhere.unsqueeze(-1)
        return (1 - share) * z + share * s, (1 - nowhere) * gate
