"""StepLinear against nn.Linear, and StepProduct against torch.bmm."""

import pytest
import torch
from torch import nn

from captioner.model.step_linear import StepLinear, StepProduct, over_steps


def twins(bias: bool) -> tuple[StepLinear, nn.Linear]:
    torch.manual_seed(0)
    step_linear, plain = StepLinear(5, 3, bias=bias).double(), nn.Linear(5, 3, bias=bias).double()
    plain.load_state_dict(step_linear.state_dict())
    return step_linear, plain


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_over_steps_equal_those_of_nn_linear(bias: bool) -> None:
    step_linear, plain = twins(bias)
    start = torch.randn(2, 4, 5, dtype=torch.double)
    results = []
    for layer in (step_linear, plain):
        x = start.clone().requires_grad_()
        h = x
        with over_steps(layer):
            for k in (4, 4, 2):  # a recurrence whose rows end one after another
                h = torch.tanh(torch.cat([layer(h[:, :k]), h[:, :k, :2]], -1))
        (h**2).sum().backward()
        results.append([x.grad, *(p.grad for p in layer.parameters())])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("halves", [False, True])
def test_gradients_of_several_backward_passes_add_up(halves: bool) -> None:
    step_linear, plain = twins(False)
    x = torch.randn(2, 3, 5, dtype=torch.double)
    for layer in (step_linear, plain):
        for _ in range(2):
            with over_steps(layer):
                parts = [layer(x).sum(), (layer(2 * x) ** 2).sum()]
            for part in parts if halves else [parts[0] + parts[1]]:
                part.backward()
    torch.testing.assert_close(step_linear.weight.grad, plain.weight.grad)


def test_without_gradients_it_equals_nn_linear() -> None:
    step_linear, plain = twins(True)
    x = torch.randn(2, 3, 5, dtype=torch.double)
    with torch.no_grad(), over_steps(step_linear):
        torch.testing.assert_close(step_linear(x), plain(x))
    step_linear.requires_grad_(False)
    with over_steps(step_linear):
        assert not step_linear(x).requires_grad


def test_an_error_in_a_step_resets_the_layer() -> None:
    step_linear, _ = twins(False)
    with pytest.raises(RuntimeError), over_steps(step_linear):
        step_linear(torch.zeros(2, 3, 4, dtype=torch.double))
    assert step_linear._steps is None


def test_under_autocast_products_are_bfloat16_and_results_float32() -> None:
    torch.manual_seed(0)
    step_linear, start = StepLinear(64, 64), torch.randn(2, 3, 64)
    results = []
    for half in (False, True):
        step_linear.zero_grad()
        x = start.clone().requires_grad_()
        h = x
        with torch.autocast("cpu", torch.bfloat16, enabled=half), over_steps(step_linear):
            assert step_linear._steps is not None  # one product for all steps, in either precision
            for _ in range(4):
                h = torch.tanh(step_linear(h))
                assert h.dtype == torch.float32
        (h**2).sum().backward()
        results.append((h.detach(), x.grad, step_linear.weight.grad, step_linear.bias.grad))
    for exact, rounded in zip(*results, strict=True):
        assert rounded.dtype == torch.float32
        assert not torch.equal(exact, rounded)  # it was rounded
        assert torch.cosine_similarity(exact.flatten(), rounded.flatten(), 0) > 0.999


def test_autocast_does_not_change_float64() -> None:
    step_linear, plain = twins(True)
    x = torch.randn(2, 3, 5, dtype=torch.double)
    with torch.autocast("cpu", torch.bfloat16), over_steps(step_linear):
        torch.testing.assert_close(step_linear(x), plain(x))


def contexts(product: nn.Module | None, weights: torch.Tensor, annotations: torch.Tensor) -> torch.Tensor:
    """Three steps of attention, each with weights that depend on the last context vector; the second caption ends."""
    total = torch.zeros((), dtype=torch.double)
    with over_steps(product or nn.Identity()):
        for k in (3, 3, 1):
            z = product(weights[:, :k], annotations) if product else torch.bmm(weights[:, :k], annotations)
            weights = torch.softmax(weights[:, :k] * z.mean(-1, keepdim=True), -1)
            total = total + (z**2).sum()
    return total


@pytest.mark.parametrize("passes", [1, 2])
def test_gradients_of_a_product_over_steps_equal_those_of_bmm(passes: int) -> None:
    torch.manual_seed(0)
    product = StepProduct()
    weights, base = torch.rand(2, 3, 4, dtype=torch.double), torch.randn(2, 4, 5, dtype=torch.double)
    results = []
    for layer in (product, None):
        w, a = weights.clone().requires_grad_(), base.clone().requires_grad_()
        for _ in range(passes):  # over annotations that are computed anew, as in every training step
            contexts(layer, w, torch.tanh(a)).backward()
        results.append((w.grad, a.grad))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_product_converts_its_matrices_once_under_autocast() -> None:
    product, annotations = StepProduct(), torch.randn(2, 4, 5, requires_grad=True)
    made = []
    with torch.autocast("cpu", torch.bfloat16), over_steps(product):
        for _ in range(3):
            z = product(torch.rand(2, 3, 4), annotations)
            assert z.dtype == torch.float32
            assert product._steps is not None
            made.append(product._steps[1].weight)
    assert made[0].dtype == torch.bfloat16
    assert made[0] is made[1] is made[2]
    assert product._steps is None


def test_a_product_over_steps_without_gradients_equals_bmm() -> None:
    product, x, annotations = StepProduct(), torch.rand(2, 3, 4), torch.randn(2, 4, 5)
    with over_steps(product):
        assert not product(x, annotations).requires_grad
        torch.testing.assert_close(product(x, annotations), torch.bmm(x, annotations))
