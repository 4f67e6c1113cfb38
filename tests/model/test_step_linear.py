"""The quick parts against torch's own."""

import pytest
import torch
from torch import nn

from captioner.model.efficientnet_lite import ConvNorm
from captioner.model.fast_cpu import convolve, dropout, sample_categorical
from captioner.model.step_linear import StepLinear, over_steps


def twins(bias: bool) -> tuple[StepLinear, nn.Linear]:
    torch.manual_seed(0)
    quick, plain = StepLinear(5, 3, bias=bias).double(), nn.Linear(5, 3, bias=bias).double()
    plain.load_state_dict(quick.state_dict())
    return quick, plain


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_over_steps_are_those_of_plain_layers(bias: bool) -> None:
    quick, plain = twins(bias)
    start = torch.randn(2, 4, 5, dtype=torch.double)
    found = []
    for layer in (quick, plain):
        x = start.clone().requires_grad_()
        h = x
        with over_steps(layer):
            for k in (4, 4, 2):  # a recurrence whose rows end one after another
                h = torch.tanh(torch.cat([layer(h[:, :k]), h[:, :k, :2]], -1))
        (h**2).sum().backward()
        found.append([x.grad, *(p.grad for p in layer.parameters())])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("halves", [False, True])
def test_gradients_add_up_over_halves_and_batches(halves: bool) -> None:
    quick, plain = twins(False)
    x = torch.randn(2, 3, 5, dtype=torch.double)
    for layer in (quick, plain):
        for _ in range(2):
            with over_steps(layer):
                parts = [layer(x).sum(), (layer(2 * x) ** 2).sum()]
            for part in parts if halves else [parts[0] + parts[1]]:
                part.backward()
    torch.testing.assert_close(quick.weight.grad, plain.weight.grad)


def test_without_gradients_it_is_a_plain_layer() -> None:
    quick, plain = twins(True)
    x = torch.randn(2, 3, 5, dtype=torch.double)
    with torch.no_grad(), over_steps(quick):
        torch.testing.assert_close(quick(x), plain(x))
    quick.requires_grad_(False)
    with over_steps(quick):
        assert not quick(x).requires_grad


def test_a_step_that_fails_leaves_the_layer_as_it_was() -> None:
    quick, _ = twins(False)
    with pytest.raises(RuntimeError), over_steps(quick):
        quick(torch.zeros(2, 3, 4, dtype=torch.double))
    assert quick._steps is None


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_keeps_the_mean_and_drops_its_share(p: float) -> None:
    torch.manual_seed(0)
    x = torch.ones(401, 503, requires_grad=True)  # no multiple of four
    y = dropout(x, p, training=True)
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.005)  # 5 standard deviations
    assert y.mean().item() == pytest.approx(1, abs=0.01)
    kept = y[y != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-4, atol=0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, y.detach())


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    gone = (dropout(torch.ones(400_000), 0.5, training=True) == 0).double()
    for shift in (1, 2, 3, 4):
        both = (gone[:-shift] * gone[shift:]).mean().item()
        assert both == pytest.approx(0.25, abs=0.004)


def test_dropout_is_nothing_where_it_should_be() -> None:
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


def test_draws_come_as_often_as_their_probabilities_say() -> None:
    p = torch.tensor([0.0, 0.5, 0.0, 0.2, 0.3, 0.0])
    drawn = sample_categorical(p.expand(4, 50_000, -1).contiguous(), torch.Generator().manual_seed(0))
    assert drawn.shape == (4, 50_000)
    shares = torch.bincount(drawn.flatten(), minlength=6) / drawn.numel()
    torch.testing.assert_close(shares, p, atol=0.006, rtol=0)  # 5 standard deviations
    assert shares[[0, 2, 5]].sum() == 0  # never what has no probability


def test_draws_follow_the_generator() -> None:
    p = torch.rand(3, 7)
    first, second = (sample_categorical(p, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, second)


def test_products_of_steps_are_made_in_bfloat16_and_what_is_passed_on_stays_float32() -> None:
    torch.manual_seed(0)
    quick, start = StepLinear(64, 64), torch.randn(2, 3, 64)
    found = []
    for half in (False, True):
        quick.zero_grad()
        x = start.clone().requires_grad_()
        h = x
        with torch.autocast("cpu", torch.bfloat16, enabled=half), over_steps(quick):
            assert quick._steps is not None  # one product for all steps, in either precision
            for _ in range(4):
                h = torch.tanh(quick(h))
                assert h.dtype == torch.float32
        (h**2).sum().backward()
        found.append((h.detach(), x.grad, quick.weight.grad, quick.bias.grad))
    for exact, rounded in zip(*found, strict=True):
        assert rounded.dtype == torch.float32
        assert not torch.equal(exact, rounded)  # it was rounded
        assert torch.cosine_similarity(exact.flatten(), rounded.flatten(), 0) > 0.999


@pytest.mark.parametrize(
    ("kernel", "stride", "groups"), [(1, 1, 1), (3, 1, 16), (5, 1, 16), (5, 2, 16), (3, 2, 1)], ids=str
)
def test_convolutions_in_bfloat16_come_close_to_exact_ones(kernel: int, stride: int, groups: int) -> None:
    torch.manual_seed(0)
    layer = ConvNorm(16, 16, kernel, stride, groups).eval()
    grid = torch.randn(4, 16, 9, 8).contiguous(memory_format=torch.channels_last)
    found = []
    for half in (False, True):
        layer.zero_grad()
        x = grid.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y = layer(x)
        (y.float() ** 2).sum().backward()
        found.append((y.detach().float(), x.grad, *(p.grad for p in layer.parameters())))
    for exact, rounded in zip(*found, strict=True):
        assert exact.shape == rounded.shape
        assert torch.cosine_similarity(exact.flatten(), rounded.flatten(), 0) > 0.999


def test_filters_of_depthwise_convolutions_get_float32_gradients_in_bfloat16() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 8, 8).bfloat16()
    quick, plain = (torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in "ab")
    with torch.autocast("cpu", torch.bfloat16):
        y = convolve(x, quick, (1, 1), (1, 1), 6)
    assert y.dtype == torch.bfloat16
    up = torch.randn(y.shape).bfloat16()
    y.backward(up)
    nn.functional.conv2d(x.float(), plain, None, 1, 1, 1, 6).backward(up.float())
    torch.testing.assert_close(quick.grad, plain.grad, rtol=1e-4, atol=1e-4)  # torch's own: off by 0.09


def test_float64_is_left_alone_under_autocast() -> None:
    quick, plain = twins(True)
    x = torch.randn(2, 3, 5, dtype=torch.double)
    with torch.autocast("cpu", torch.bfloat16), over_steps(quick):
        torch.testing.assert_close(quick(x), plain(x))


def test_without_autocast_convolutions_are_torchs_own() -> None:
    x, weight = torch.randn(2, 6, 7, 7), torch.randn(6, 1, 3, 3, requires_grad=True)
    assert torch.equal(convolve(x, weight, (2, 2), (1, 1), 6), nn.functional.conv2d(x, weight, None, 2, 1, 1, 6))
