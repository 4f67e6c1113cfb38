"""Sampled cells follow alpha; Gumbel-softmax has the gradient of its relaxation."""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch import nn

from captioner.model.attention.cell_sampling import CellChoice, StraightThroughSampling, gumbel_noise, select_cell
from tests.model.tiny_models import make_annotations, make_captions, make_decoder, noise


def test_without_noise_the_likeliest_cell_is_selected():
    alpha = torch.tensor([[[0.2, 0.5, 0.3], [0.4, 0.35, 0.25]]])
    assert select_cell(alpha, None).tolist() == [[1, 0]]


def test_with_noise_cells_are_sampled_with_the_probabilities_alpha():
    alpha = torch.tensor([0.6, 0.25, 0.1, 0.05, 0.0])
    samples = 40_000
    noise = gumbel_noise((1, samples, 5), torch.Generator().manual_seed(0), alpha.device)
    counts = torch.bincount(select_cell(alpha.expand(1, samples, 5), noise).flatten(), minlength=5)
    for count, p in zip(counts.tolist(), alpha.tolist(), strict=True):
        assert abs(count - samples * p) < 4 * (samples * p * (1 - p)) ** 0.5 + 1e-9


def test_noise_is_finite_and_has_the_gumbel_distribution():
    """P(g < x) = exp(-exp(-x)). Half precision would have too few numbers to sample a rare cell."""
    noise = gumbel_noise((200, 500), torch.Generator().manual_seed(1), torch.device("cpu"))
    assert noise.isfinite().all()
    for x in (-1.0, 0.0, 2.0, 7.0):
        p = exp(-exp(-x))
        assert float((noise < x).float().mean()) == pytest.approx(p, abs=4 * (p * (1 - p) / 1e5) ** 0.5)
    assert float(noise.max()) > log(1e5) - 2
    assert noise.unique().numel() > 90_000


def test_the_same_seed_samples_the_same_cells():
    one, same, other = (gumbel_noise((4, 5), torch.Generator().manual_seed(s), torch.device("cpu")) for s in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_straight_through_attends_to_one_cell_and_has_the_gradient_of_the_softmax():
    alpha = torch.softmax(noise(1, 4, 5), -1).requires_grad_()
    gumbel = noise(1, 4, 5, seed=1)
    values, sampled = noise(4, 5, seed=2), torch.ones(1, 4, dtype=torch.bool)
    weights, cell = StraightThroughSampling(0.6).train()(alpha, CellChoice(sampled, gumbel))
    assert cell is not None
    torch.testing.assert_close(weights.detach(), nn.functional.one_hot(cell, 5).double())
    (found,) = torch.autograd.grad((weights * values).sum(), alpha)
    same = alpha.detach().requires_grad_()
    relaxed = torch.softmax((same.log() + gumbel) / 0.6, -1)
    (expected,) = torch.autograd.grad((relaxed * values).sum(), same)
    torch.testing.assert_close(found, expected)
    assert expected.abs().max() > 0.1


def test_gumbel_gives_the_loss_no_cells_to_reward():
    decoder = make_decoder(attention={"mode": "gumbel"}).train()
    captions, sampled = make_captions([[4, 3]]), torch.ones(1, 2, dtype=torch.bool)
    forced = decoder(make_annotations(1), *captions, sampled=sampled, generator=torch.Generator().manual_seed(0))
    assert forced.cell is None and forced.sampled is None
    forced.logits.sum().backward()
    assert decoder.score.query.weight.grad.abs().max() > 0


def test_gumbel_trains_attention_also_with_given_cells():
    """Self-critical training gives the cells that it sampled, and has no dropout."""
    decoder = make_decoder(attention={"mode": "gumbel"}).eval()
    captions, sampled = make_captions([[4, 3]]), torch.ones(1, 2, dtype=torch.bool)
    cells = torch.tensor([[[0, 3, 8, 2], [5, 5, 1, 0]]])
    forced = decoder(make_annotations(1), *captions, sampled=sampled, cells=cells)
    nn.functional.cross_entropy(forced.logits, forced.targets).backward()
    assert decoder.score.query.weight.grad.abs().max() > 0
