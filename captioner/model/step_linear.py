"""StepLinear: a linear layer for recurrent networks, whose training is fast on a CPU.

A layer that is used at every step of a caption has a weight gradient that is a sum over the steps. Autograd computes
one product per step and adds up the matrices. One product over all steps gives the same sum:

    dW = sum_t dy_t^T x_t = [dy_1; ...; dy_T]^T [x_1; ...; x_T]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pairs = list[tuple[Tensor, Tensor]]  # x_t and dy_t of every step, as matrices


class _Steps(NamedTuple):
    """What the steps inside `over_steps` share."""

    weight: Tensor  # in the precision of the products
    sum: Tensor  # a scalar that every step depends on, so that its backward pass comes after those of the steps
    pairs: Pairs


class StepLinear(nn.Linear):
    """nn.Linear, with the same weights and results. Inside `over_steps`, its weight gradient is one matrix product.

    Under autocast the products are computed in half precision, and the result is converted back to the precision of
    the weights: the state that is passed from step to step stays float32.
    """

    _steps: _Steps | None = None

    @contextmanager
    def over_steps(self) -> Iterator[None]:
        """Surrounds the forward passes of all steps. The backward pass may come later."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        dtype = product_type(self.weight)
        if not learns or torch.compiler.is_compiling() or dtype == torch.float16:  # sums in float16 may overflow
            yield
            return
        pairs: Pairs = []
        self._steps = _Steps(self.weight.detach().to(dtype), _Sum.apply(self.weight, pairs), pairs)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self._steps = None

    def forward(self, x: Tensor) -> Tensor:
        if self._steps is None:
            return super().forward(x).to(self.weight.dtype)
        y: Tensor = _Step.apply(x, *self._steps)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias


@contextmanager
def over_steps(module: nn.Module) -> Iterator[None]:
    """`StepLinear.over_steps` for all such layers of a module."""
    with ExitStack() as stack:
        for layer in module.modules():
            if isinstance(layer, StepLinear):
                stack.enter_context(layer.over_steps())
        yield


def product_type(weight: Tensor) -> torch.dtype:
    """The precision in which products with this weight are computed: autocast's, where it is on.

    Autocast does not change float64.
    """
    device = weight.device.type
    autocast = torch.is_autocast_enabled(device) and weight.dtype != torch.float64
    return torch.get_autocast_dtype(device) if autocast else weight.dtype


class _Step(torch.autograd.Function):
    """y_t = W x_t. The backward pass saves x_t and dy_t for `_Sum`, and passes no gradient to the weight itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, total: Tensor, pairs: Pairs) -> Tensor:
        narrow = x.to(weight.dtype)
        ctx.save_for_backward(narrow, weight)
        ctx.pairs, ctx.dtype = pairs, x.dtype
        return F.linear(narrow, weight).to(total.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, Tensor, None]:
        x, weight = ctx.saved_tensors
        narrow = dy.to(weight.dtype)
        ctx.pairs.append((x.flatten(0, -2), narrow.flatten(0, -2)))
        return (narrow @ weight).to(ctx.dtype), None, dy.new_zeros(()), None


class _Sum(torch.autograd.Function):
    """A scalar 0 that depends on the weight. Its backward pass computes the weight gradient from all pairs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs, ctx.dtype = pairs, weight.dtype
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        xs, dys = zip(*ctx.pairs, strict=True)
        ctx.pairs.clear()
        return (torch.cat(dys).T @ torch.cat(xs)).to(ctx.dtype), None
