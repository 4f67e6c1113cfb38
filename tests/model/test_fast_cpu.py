"""The fast operations for CPUs against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from captioner.model.efficientnet_lite import ConvNorm
from captioner.model.fast_cpu import attend, convolve, dropout, sample_categorical


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_preserves_the_mean_and_drops_with_probability_p(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 503, requires_grad=True)  # not a multiple of four
    y = dropout(x, p, training=True)
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.005)  # 5 standard deviations
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    nonzero = y[y != 0]
    torch.testing.assert_close(nonzero, torch.full_like(nonzero, 1 / (1 - p)), rtol=1e-4, atol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach())


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(400_000), 0.5, training=True) == 0).double()
    for shift in (1, 2, 3, 4):
        both = (dropped[:-shift] * dropped[shift:]).mean().item()
        assert both == pytest.approx(0.25, abs=0.004)


def test_dropout_changes_nothing_in_eval_mode_or_with_p_zero() -> None:
    x = torch.randn(3, 4)
    assert dropout(x, 0.5, training=False) is x
    torch.testing.assert_close(dropout(x, 0.0, training=True), x)


def test_dropout_follows_the_seed() -> None:
    x = torch.ones(100)
    torch.manual_seed(7)
    first = dropout(x, 0.5, training=True)
    second = dropout(x, 0.5, training=True)
    torch.manual_seed(7)
    assert torch.equal(dropout(x, 0.5, training=True), first)
    assert not torch.equal(first, second)


def test_categorical_samples_follow_the_probabilities() -> None:
    p = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    samples = sample_categorical(p.expand(4, 50_000, -1).contiguous(), torch.Generator().manual_seed(0))
    assert samples.shape == (4, 50_000)
    shares = torch.bincount(samples.flatten(), minlength=6) / samples.numel()
    torch.testing.assert_close(shares, p, atol=0.006, rtol=0)  # 5 standard deviations
    assert shares[[0, 2, 5]].sum() == 0  # indices without probability are never sampled


def test_categorical_samples_follow_the_generator() -> None:
    p = torch.rand(3, 7)
    first, second = (sample_categorical(p, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("kernel", "stride", "groups"), [(1, 1, 1), (3, 1, 16), (5, 1, 16), (5, 2, 16), (3, 2, 1)], ids=str
)
def test_bfloat16_convolutions_are_close_to_float32_ones(kernel: int, stride: int, groups: int) -> None:
    torch.manual_seed(0)
    layer = ConvNorm(16, 16, kernel, stride, groups).eval()
    grid = torch.randn(4, 16, 9, 8).contiguous(memory_format=torch.channels_last)
    results = []
    for half in (False, True):
        layer.zero_grad()
        x = grid.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = layer(x)
        (y.float() ** 2).sum().backward()
        results.append((y.detach().float(), x.grad, *(p.grad for p in layer.parameters())))
    for exact, rounded in zip(*results, strict=True):
        assert exact.shape == rounded.shape
        assert torch.cosine_similarity(exact.flatten(), rounded.flatten(), 0) > 0.999


def test_depthwise_filters_get_float32_gradients_under_bfloat16() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 8, 8).bfloat16()
    quick, plain = (torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in "ab")
    with torch.autocast("cpu", torch.bfloat16):
        y = convolve(x, quick, (1, 1), (1, 1), 6)
    assert y.dtype == torch.bfloat16
    up = torch.randn(y.shape).bfloat16()
    y.backward(up)
    nn.functional.conv2d(x.float(), plain, None, 1, 1, 1, 6).backward(up.float())
    torch.testing.assert_close(quick.grad, plain.grad, rtol=1e-4, atol=1e-4)  # torch's own gradient is off by 0.09


@pytest.mark.parametrize("side", [9, 10])  # the filters don't reach the last row and column of ten
@pytest.mark.parametrize("trained", [True, False])
def test_strided_depthwise_convolutions_pass_on_gradients_of_float32(trained: bool, side: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, side, side).bfloat16().requires_grad_()
    weight = torch.randn(6, 1, 3, 3).bfloat16().float().requires_grad_(trained)
    with torch.autocast("cpu", torch.bfloat16):
        y = convolve(x, weight, (2, 2), (0, 0), 6)
    up = torch.randn(y.shape).bfloat16()
    y.backward(up)
    exact = x.detach().float().requires_grad_()
    nn.functional.conv2d(exact, weight.detach(), None, 2, 0, 1, 6).backward(up.float())
    assert x.grad is not None and exact.grad is not None
    assert torch.equal(x.grad, exact.grad.bfloat16())
    assert (weight.grad is not None) == trained


def test_convolutions_without_autocast_equal_torchs() -> None:
    x, weight = torch.randn(2, 6, 7, 7), torch.randn(6, 1, 3, 3, requires_grad=True)
    assert torch.equal(convolve(x, weight, (2, 2), (1, 1), 6), nn.functional.conv2d(x, weight, None, 2, 1, 1, 6))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradients_are_those_of_torch(causal: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v, weights = (torch.randn(2, 3, 7, 8, generator=generator, dtype=torch.float64) for _ in range(4))
    results = []
    for function in (
        lambda q, k, v: attend(q, k, v, causal=causal),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
    ):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        y = function(*leaves)
        results.append((y.detach(), *torch.autograd.grad((y * weights).sum(), leaves)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
