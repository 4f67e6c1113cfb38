"""Parts of torch.nn that a caption's many small steps make slow on a CPU, made quick. Same mathematics.

`StepLinear` is used at every step of a caption. Its weight's gradient is a sum over the steps,

    dW = sum_t dy_t^T x_t = [dy_1; ...; dy_T]^T [x_1; ...; x_T],

which autograd makes step by step, each time adding a whole matrix to the last sum; here it is one product.

Under autocast to bfloat16 products are made of bfloat16 numbers, and what goes from step to step stays float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pairs = list[tuple[Tensor, Tensor]]  # x_t and dy_t, as matrices


class StepLinear(nn.Linear):
    """A linear layer that, `over_steps`, computes its weight's gradient once for all of them."""

    _ticket: tuple[Tensor, Tensor, Pairs] | None = None

    @contextmanager
    def over_steps(self) -> Iterator[None]:
        """Around the forward passes of all steps; the backward pass may come later."""
        learns = torch.is_grad_enabled() and self.weight.requires_grad
        kind = product_type(self.weight)
        if not learns or torch.compiler.is_compiling() or kind == torch.float16:  # whose sums may overflow
            yield
            return
        pairs: Pairs = []
        self._ticket = (self.weight.detach().to(kind), _Sum.apply(self.weight, pairs), pairs)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            self._ticket = None

    def forward(self, x: Tensor) -> Tensor:
        if self._ticket is None:
            return super().forward(x).to(self.weight.dtype)
        y: Tensor = _Step.apply(x, *self._ticket)  # type: ignore[no-untyped-call]
        return y if self.bias is None else y + self.bias


def product_type(weight: Tensor) -> torch.dtype:
    """What numbers autocast, where it is on, makes products of; it leaves float64 alone."""
    device = weight.device.type
    autocast = torch.is_autocast_enabled(device) and weight.dtype != torch.float64
    return torch.get_autocast_dtype(device) if autocast else weight.dtype


@contextmanager
def over_steps(module: nn.Module) -> Iterator[None]:
    """`StepLinear.over_steps` of all such layers inside a module."""
    with ExitStack() as stack:
        for layer in module.modules():
            if isinstance(layer, StepLinear):
                stack.enter_context(layer.over_steps())
        yield


class _Step(torch.autograd.Function):
    """y_t = W x_t; its backward pass keeps x_t and dy_t for `_Sum`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, ticket: Tensor, pairs: Pairs) -> Tensor:
        narrow = x.to(weight.dtype)
        ctx.save_for_backward(narrow, weight)
        ctx.pairs, ctx.kind = pairs, x.dtype
        return F.linear(narrow, weight).to(ticket.dtype)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, Tensor, None]:
        x, weight = ctx.saved_tensors
        narrow = dy.to(weight.dtype)
        ctx.pairs.append((x.flatten(0, -2), narrow.flatten(0, -2)))
        return (narrow @ weight).to(ctx.kind), None, dy.new_zeros(()), None


class _Sum(torch.autograd.Function):
    """A ticket that every step takes: so its backward pass comes after all of theirs."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pairs: Pairs) -> Tensor:
        ctx.pairs, ctx.kind = pairs, weight.dtype
        return weight.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        xs, dys = zip(*ctx.pairs, strict=True)
        ctx.pairs.clear()
        return (torch.cat(dys).T @ torch.cat(xs)).to(ctx.kind), None


def convolve(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, int], groups: int) -> Tensor:
    """F.conv2d. In bfloat16 on a CPU, its 1x1 convolutions are matrix products, half the time of float32's, and its
    depthwise ones make the weight's gradient in float32, which takes a quarter of the time.
    """
    if weight.device.type != "cpu" or product_type(weight) != torch.bfloat16:
        return F.conv2d(x, weight, None, stride, padding, 1, groups)
    if weight.shape[2:] == (1, 1) and groups == 1 and stride == (1, 1) and padding == (0, 0):
        return F.linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)
    if groups == len(weight) and weight.requires_grad:
        y: Tensor = _Depthwise.apply(x.bfloat16(), weight, stride, padding)  # type: ignore[no-untyped-call]
        return y
    return F.conv2d(x, weight, None, stride, padding, 1, groups)


class _Depthwise(torch.autograd.Function):
    """A convolution of each channel by itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.how = (stride, padding)
        return F.conv2d(x, weight.to(x.dtype), None, stride, padding, 1, len(weight))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        stride, padding = ctx.how
        how: Any = (None, stride, padding, (1, 1), False, (0, 0), len(weight))
        back = torch.ops.aten.convolution_backward
        dx = None
        if ctx.needs_input_grad[0]:
            dx = back(dy, x, weight.to(x.dtype), *how, (True, False, False))[0]
        dw = back(dy.float(), x.float(), weight, *how, (False, True, False))[1]
        return dx, dw, None, None


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout; on the CPU four masks' bits are drawn as one number, which takes a seventh of the time."""
    if not training or p == 0 or x.device.type != "cpu":
        return F.dropout(x, p, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = round(p * 2**16)  # of the 2^16 numbers that 16 bits make
    keep = (bits[: x.numel()] >= dropped - 2**15).view(x.shape)
    return x * keep.to(x.dtype).mul_(2**16 / (2**16 - dropped))


def draw(p: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One index from each row of probabilities (..., V), by the inverse of their running sum.

    torch.multinomial draws a number for every word, which takes twenty times as long.
    """
    sums = p.cumsum(-1)
    at = torch.rand(sums.shape[:-1], generator=generator, device=p.device).unsqueeze(-1) * sums[..., -1:]
    return torch.searchsorted(sums, at, right=True).squeeze(-1).clamp_max(p.shape[-1] - 1)
