"""log p of words, by blocks, against torch's own log_softmax and its gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from captioner.model import word_likelihood
from captioner.model.word_likelihood import log_likelihood


def by_log_softmax(
    logits: Tensor, targets: Tensor, smoothing: float, temperature: float, excluded: list[int]
) -> tuple[Tensor, Tensor]:
    allowed = [word for word in range(logits.shape[1]) if word not in excluded]
    log_softmax = F.log_softmax((logits / temperature)[:, allowed], -1)
    columns = torch.tensor([allowed.index(int(word)) for word in targets])
    log_p = log_softmax.gather(1, columns.unsqueeze(1)).squeeze(1)
    return (1 - smoothing) * log_p + smoothing * log_softmax.mean(-1), log_p


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("excluded", [[], [0, 5]])
def test_values_and_gradients_are_those_of_log_softmax(smoothing: float, temperature: float, excluded: list[int]):
    generator = torch.Generator().manual_seed(1)
    rows = 2 * word_likelihood._ROWS + 3  # two whole blocks and a part of one
    logits = torch.randn(rows, 11, generator=generator, dtype=torch.float64).mul_(4).requires_grad_()
    targets = torch.randint(6, 11, (rows,), generator=generator)
    weights = torch.randn(rows, generator=generator, dtype=torch.float64)
    results = []
    for smoothed, log_p in (
        log_likelihood(logits, targets, label_smoothing=smoothing, temperature=temperature, excluded=excluded),
        by_log_softmax(logits, targets, smoothing, temperature, excluded),
    ):
        (gradient,) = torch.autograd.grad((smoothed * weights).sum(), logits)
        results.append((smoothed.detach(), log_p.detach(), gradient))
    for blocks, whole in zip(*results, strict=True):
        torch.testing.assert_close(blocks, whole)


def test_logits_in_half_precision_are_summed_in_float32():
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(5, 3000, generator=generator).bfloat16().requires_grad_()
    targets = torch.arange(5)
    log_p, _ = log_likelihood(logits, targets)
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p, by_log_softmax(logits.float(), targets, 0.0, 1.0, [])[1])
    log_p.sum().backward()
    exact = logits.detach().float().requires_grad_()
    F.log_softmax(exact, -1).gather(1, targets.unsqueeze(1)).sum().backward()
    assert logits.grad is not None and exact.grad is not None
    torch.testing.assert_close(logits.grad, exact.grad.bfloat16())


def test_an_excluded_word_has_no_probability_and_no_gradient():
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(3)).requires_grad_()
    targets = torch.tensor([2, 4, 2])
    log_p, _ = log_likelihood(logits, targets, excluded=[0, 2])
    assert log_p[[0, 2]].tolist() == [-math.inf] * 2
    log_p.sum().backward()
    leaf = logits.detach().requires_grad_()
    allowed = torch.ones(6, dtype=torch.bool).index_fill(0, torch.tensor([0, 2]), False)
    F.log_softmax(leaf.where(allowed, -torch.inf), -1).gather(1, targets.unsqueeze(1)).sum().backward()
    assert logits.grad is not None and not logits.grad[:, [0, 2]].any()
    torch.testing.assert_close(logits.grad, leaf.grad)


def test_the_likelihood_without_smoothing_has_no_gradient():
    logits = torch.zeros(2, 4, requires_grad=True)
    smoothed, log_p = log_likelihood(logits, torch.tensor([1, 2]), label_smoothing=0.1)
    assert smoothed.requires_grad
    assert not log_p.requires_grad
