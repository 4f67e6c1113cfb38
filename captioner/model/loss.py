"""The training loss, for soft and for hard attention (Xu et al. 2015, sections 4.1 and 4.2).

    soft:  -log p(y | a) + lambda * sum_i (1 - sum_t alpha_ti)^2
    hard:  -log p(y | s, a) - lambda_r * sum_t (R_t - b_t) log alpha_t,s_t - lambda_e * sum_t H[alpha_t]

Sums over words include the end token and no padding. They are divided by the number of captions, never by the number
of words, so that lambda and lambda_r mean what they mean in the paper.

R_t = sum_{t' >= t} log p(y_t' | s, a) is the likelihood of the words from step t on (earlier words do not depend on
s_t). It carries no gradient. The baseline b_t is one of two. With one sample s per caption it is b * (words left at t),
where b is a moving average of the mean log p of a word over sampled captions. With several samples of the same caption
it is the mean of R_t over the other ones (leave-one-out, Kool et al. 2019): most of the variance of R_t is how hard the
words of a caption are, which is in both and cancels out. Neither depends on s_t, so the gradient is unbiased.

Captions that use the expectation instead of a sample have neither the score-function term nor the entropy bonus, but
they count among the captions that a sum is divided by. Both kinds of attention have the doubly stochastic term.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.model.caption_decoder import TeacherForced
from captioner.model.word_likelihood import log_likelihood


@dataclass(frozen=True)
class Loss:
    """The loss to minimise, and its parts for logging."""

    total: Tensor  # per caption
    words: Tensor  # number of words, without padding
    nll: Tensor  # sum over words of -log p, without label smoothing; no gradient
    coverage: Tensor  # the doubly stochastic term, per caption; no gradient
    entropy: Tensor  # mean entropy of alpha over words; no gradient
    advantage: Tensor  # hard attention: root mean square of R_t - b_t over sampled words; no gradient
    sampled: Tensor  # (2,): sum of log p and number of words of sampled captions, for the baseline


def loss(
    forced: TeacherForced,
    captions: int,
    *,
    label_smoothing: float = 0.0,
    doubly_stochastic: float = 0.0,
    reward: float = 1.0,
    entropy: float = 0.0,
    baseline: float = 0.0,
    samples: int = 1,
) -> Loss:
    """The loss of `captions` captions. It has the terms of hard attention where captions were sampled.

    With `samples` above 1, that many rows in succession are samples of the same caption, and each counts as a caption.
    """
    smoothed, log_p = log_likelihood(forced.logits, forced.targets, label_smoothing=label_smoothing)  # (N,) each
    total = -smoothed.sum() / captions
    map_entropy = -(forced.alpha * torch.log(forced.alpha.clamp_min(1e-20))).sum(-1)  # H[alpha_t], (N,)
    coverage = doubly_stochastic_term(forced, captions)
    if doubly_stochastic:
        total = total + doubly_stochastic * coverage
    sampled = torch.zeros(2, device=log_p.device)
    advantage = torch.zeros(1, device=log_p.device)
    if forced.sampled is not None and forced.cell is not None:
        mask = forced.sampled.to(log_p.dtype)
        log_s = torch.log(forced.alpha.gather(1, forced.cell.unsqueeze(1)).squeeze(1).clamp_min(1e-20))
        likelihood = rewards(log_p, forced)
        others = mean_of_others(likelihood, forced, samples) if samples > 1 else baseline * words_left(forced)
        advantage = (likelihood - others) * mask
        total = total - reward * (advantage * log_s).sum() / captions
        total = total - entropy * (map_entropy * mask).sum() / captions
        sampled = torch.stack([(log_p * mask).sum(), mask.sum()])
    return Loss(
        total=total,
        words=torch.tensor(float(len(log_p)), device=log_p.device),
        nll=-log_p.sum(),
        coverage=coverage.detach(),
        entropy=map_entropy.detach().mean(),
        advantage=(advantage.square().sum() / sampled[1].clamp_min(1)).sqrt(),
        sampled=sampled,
    )


def doubly_stochastic_term(forced: TeacherForced, captions: int) -> Tensor:
    """Mean over captions of sum_i (1 - sum_t alpha_ti)^2."""
    rows, index = torch.unique(forced.row, return_inverse=True)
    sums = forced.alpha.new_zeros(len(rows), forced.alpha.shape[1]).index_add(0, index, forced.alpha)
    return ((1 - sums) ** 2).sum() / captions


def rewards(log_p: Tensor, forced: TeacherForced) -> Tensor:
    """R_t of every word: the sum of log p over the word and all later words of its caption."""
    rows, times = int(forced.row.max()) + 1, int(forced.time.max()) + 1
    table = torch.zeros(rows, times, dtype=log_p.dtype, device=log_p.device)
    table[forced.row, forced.time] = log_p
    table = table.flip(1).cumsum(1).flip(1)
    return table[forced.row, forced.time]


def words_left(forced: TeacherForced) -> Tensor:
    """The number of words of a caption from a word on, for every word."""
    return rewards(torch.ones(len(forced.row), device=forced.row.device), forced)


def mean_of_others(values: Tensor, forced: TeacherForced, samples: int) -> Tensor:
    """For every word: the mean of `values` at the same word in the other samples of its caption."""
    rows, times = int(forced.row.max()) + 1, int(forced.time.max()) + 1
    table = torch.zeros(-(-rows // samples) * samples, times, dtype=values.dtype, device=values.device)
    table[forced.row, forced.time] = values
    sums = table.view(-1, samples, times).sum(1).repeat_interleave(samples, 0)
    return (sums[forced.row, forced.time] - values) / (samples - 1)
