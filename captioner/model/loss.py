"""What training minimises, for soft and for hard attention (Xu et al. 2015, sections 4.1 and 4.2).

Reductions: every sum over words runs over real words, the end token included, and is divided by the
number of captions, never by the number of words. So -log p(y | a), log p(s | a), the entropy and the
doubly stochastic term are all per caption, and lambda and lambda_r mean what they mean in the paper.

    soft:  -log p(y | a) + lambda * sum_i (1 - sum_t alpha_ti)^2
    hard:  -log p(y | s, a) - lambda_r * sum_t (R_t - b_t) log alpha_t,s_t - lambda_e * sum_t H[alpha_t]

R_t = sum_{t' >= t} log p(y_t' | s, a) is the likelihood of the words from step t on (earlier words do not
depend on s_t); it carries no gradient. The baseline is b_t = b * (words left at t), where b is a moving
average of the mean log p of a word over sampled rows. Rows that use the expectation in place of a sample
have neither score-function term nor entropy bonus; they count among the captions a sum is divided by.
Both kinds of attention carry the doubly stochastic term.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from captioner.model.decoder import Reading


@dataclass(frozen=True)
class Loss:
    """The sum to minimise, and its parts as numbers to log."""

    total: Tensor  # per caption
    words: Tensor  # number of real words
    nll: Tensor  # sum over words of -log p, without label smoothing; no gradient
    coverage: Tensor  # the doubly stochastic term, per caption; no gradient
    entropy: Tensor  # mean entropy of alpha over words; no gradient
    sampled: Tensor  # (2,): sum of log p and number of words of sampled rows, for the baseline


def loss(
    reading: Reading,
    captions: int,
    *,
    label_smoothing: float = 0.0,
    doubly_stochastic: float = 0.0,
    reward: float = 1.0,
    entropy: float = 0.0,
    baseline: float = 0.0,
) -> Loss:
    """The objective of a reading of `captions` captions; hard where the reading has sampled rows."""
    every = F.log_softmax(reading.logits, -1)  # (N, V)
    log_p = every.gather(1, reading.targets.unsqueeze(1)).squeeze(1)  # (N,)
    smoothed = (1 - label_smoothing) * log_p + label_smoothing * every.mean(-1) if label_smoothing else log_p
    total = -smoothed.sum() / captions
    spread = -(reading.alpha * torch.log(reading.alpha.clamp_min(1e-20))).sum(-1)  # H[alpha_t], (N,)
    cover = doubly_stochastic_term(reading, captions)
    if doubly_stochastic:
        total = total + doubly_stochastic * cover
    sampled = torch.zeros(2, device=log_p.device)
    if reading.chosen is not None and reading.place is not None:
        mask = reading.chosen.to(log_p.dtype)
        log_s = torch.log(reading.alpha.gather(1, reading.place.unsqueeze(1)).squeeze(1).clamp_min(1e-20))
        advantage = (rewards(log_p.detach(), reading) - baseline * words_left(reading)) * mask
        total = total - reward * (advantage * log_s).sum() / captions
        total = total - entropy * (spread * mask).sum() / captions
        sampled = torch.stack([(log_p.detach() * mask).sum(), mask.sum()])
    return Loss(
        total,
        torch.tensor(float(len(log_p)), device=log_p.device),
        -log_p.detach().sum(),
        cover.detach(),
        spread.detach().mean(),
        sampled,
    )


def doubly_stochastic_term(reading: Reading, captions: int) -> Tensor:
    """Mean over captions of sum_i (1 - sum_t alpha_ti)^2."""
    rows, index = torch.unique(reading.row, return_inverse=True)
    sums = reading.alpha.new_zeros(len(rows), reading.alpha.shape[1]).index_add(0, index, reading.alpha)
    return ((1 - sums) ** 2).sum() / captions


def rewards(log_p: Tensor, reading: Reading) -> Tensor:
    """R_t for every word: the sum of log p over it and the words after it in its caption."""
    rows, times = int(reading.row.max()) + 1, int(reading.time.max()) + 1
    table = torch.zeros(rows, times, dtype=log_p.dtype, device=log_p.device)
    table[reading.row, reading.time] = log_p
    table = table.flip(1).cumsum(1).flip(1)
    return table[reading.row, reading.time]


def words_left(reading: Reading) -> Tensor:
    """For every word, how many words its caption has from it on."""
    return rewards(torch.ones(len(reading.row), device=reading.row.device), reading)
