"""StepLinear and StepProduct: products for recurrent networks, whose training is fast on a CPU.

A matrix that is used at every step of a caption has a gradient that is a sum over the steps. Autograd computes one
product per step and adds up the matrices. One product over all steps gives the same sum:

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

    weight: Tensor  # or the matrices of the batch, in the precision of the products
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
        if not _sums_over_steps(self.weight):
            yield
            return
        pairs: Pairs = []
        narrow = self.weight.detach().to(product_type(self.weight))
        self._steps = _Steps(narrow, _Sum.apply(self.weight, pairs), pairs)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self._steps = None

    def forward(self, x: Tensor) -> Tensor:
        if self._steps is None:
            return super().forward(x).to(self.weight.dtype)
        y: Tensor = _Step.apply(x, *self._steps)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias


class StepProduct(nn.Module):
    """torch.bmm(x, matrices), for matrices (B, L, D) that are the same at every step, such as annotations.

    Inside `over_steps`, the gradient of the matrices is one product, and autocast converts them once, not at each step.
    """

    _inside = False
    _steps: tuple[Tensor, _Steps] | None = None  # the matrices, and what their steps share

    @contextmanager
    def over_steps(self) -> Iterator[None]:
        """Surrounds the forward passes of all steps. The backward pass may come later."""
        self._inside = True
        try:
            yield
        finally:
            self._inside, self._steps = False, None

    def forward(self, x: Tensor, matrices: Tensor) -> Tensor:
        if not self._inside or not _sums_over_steps(matrices):
            return torch.bmm(x, matrices)
        if self._steps is None or self._steps[0] is not matrices:
            pairs: Pairs = []
            total = _ProductSum.apply(matrices, pairs)  # type: ignore[no-untyped-call]
            self._steps = matrices, _Steps(matrices.detach().to(product_type(matrices)).contiguous(), total, pairs)
        y: Tensor = _ProductStep.apply(x, *self._steps[1])  # type: ignore[no-untyped-call]
        return y


@contextmanager
def over_steps(module: nn.Module) -> Iterator[None]:
    """`over_steps` for all layers of a module that have it."""
    with ExitStack() as stack:
        for layer in module.modules():
            if isinstance(layer, (StepLinear, StepProduct)):
                stack.enter_context(layer.over_steps())
        yield


def _sums_over_steps(matrix: Tensor) -> bool:
    """Whether the gradient of a matrix is computed by one product over all steps."""
    learns = torch.is_grad_enabled() and matrix.requires_grad
    # sums in float16 may overflow
    return learns and not torch.compiler.is_compiling() and product_type(matrix) != torch.float16


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


class _ProductStep(torch.autograd.Function):
    """y_t = x_t A for matrices A of a batch. As `_Step`, but x_t (B, K, L) and y_t (B, K, D) keep their batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: Tensor, total: Tensor, pairs: Pairs) -> Tensor:
        narrow = x.to(matrices.dtype)
        ctx.save_for_backward(narrow, matrices)
        ctx.pairs, ctx.dtype = pairs, x.dtype
        return torch.bmm(narrow, matrices).to(total.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, Tensor, None]:
        x, matrices = ctx.saved_tensors
        narrow = dy.to(matrices.dtype)
        ctx.pairs.append((x, narrow))
        return torch.bmm(narrow, matrices.transpose(1, 2)).to(ctx.dtype), None, dy.new_zeros(()), None


class _ProductSum(torch.autograd.Function):
    """As `_Sum`, for the matrices of a batch."""

    @staticmethod
    def forward(ctx: Any, matrices: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs, ctx.dtype = pairs, matrices.dtype
        return matrices.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        xs, dys = zip(*ctx.pairs, strict=True)
        ctx.pairs.clear()
        return torch.bmm(torch.cat(xs, 1).transpose(1, 2), torch.cat(dys, 1)).to(ctx.dtype), None
