"""Operations of torch that are slow in training on a CPU, with faster equivalents. The mathematics is the same."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from captioner.model.step_linear import product_type


def convolve(x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, int], groups: int) -> Tensor:
    """F.conv2d, faster in bfloat16 on a CPU.

    There, 1x1 convolutions are computed as matrix products, in half the time that float32 takes. Depthwise convolutions
    compute the gradient of their weight in float32, in a quarter of the time that bfloat16 takes, and the gradient of
    their input by a convolution, which takes a tenth of the time of oneDNN's own gradient with a stride.
    """
    if weight.device.type != "cpu" or product_type(weight) != torch.bfloat16:
        return F.conv2d(x, weight, None, stride, padding, 1, groups)
    if weight.shape[2:] == (1, 1) and groups == 1 and stride == (1, 1) and padding == (0, 0):
        return F.linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)
    if groups == len(weight) and weight.shape[1] == 1 and (weight.requires_grad or stride != (1, 1)):
        y: Tensor = _Depthwise.apply(x.bfloat16(), weight, stride, padding)  # type: ignore[no-untyped-call]
        return y
    return F.conv2d(x, weight, None, stride, padding, 1, groups)


class _Depthwise(torch.autograd.Function):
    """A convolution with one filter per channel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.geometry = (stride, padding)
        return F.conv2d(x, weight.to(x.dtype), None, stride, padding, 1, len(weight))

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        stride, padding = ctx.geometry
        dx = dw = None
        if ctx.needs_input_grad[0]:
            dx = _input_gradient(dy.to(x.dtype), x, weight, stride, padding)
        if ctx.needs_input_grad[1]:
            geometry: Any = (None, stride, padding, (1, 1), False, (0, 0), len(weight))
            backward = torch.ops.aten.convolution_backward
            dw = backward(dy.float(), x.float(), weight, *geometry, (False, True, False))[1]
        return dx, dw, None, None


def _input_gradient(dy: Tensor, x: Tensor, weight: Tensor, stride: tuple[int, ...], padding: tuple[int, int]) -> Tensor:
    """The gradient of x: dy with zeros between its values, convolved with the mirrored filters."""
    rows, cols = (
        size + 2 * pad - kernel + 1 for size, pad, kernel in zip(x.shape[2:], padding, weight.shape[2:], strict=True)
    )
    layout = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
    spread = dy
    if max(stride) > 1:
        spread = torch.empty((*dy.shape[:2], rows, cols), dtype=dy.dtype, memory_format=layout).zero_()
        spread[..., :: stride[0], :: stride[1]] = dy
    pads = [kernel - 1 - pad for kernel, pad in zip(weight.shape[2:], padding, strict=True)]
    return F.conv2d(spread, weight.to(dy.dtype).flip(2, 3), None, 1, pads, 1, len(weight))


def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """F.scaled_dot_product_attention. With gradients on a CPU, plain products take a sixth of its time for our sizes.

    torch's function computes in blocks, which save memory, but our maps of some hundred cells and words are small.
    """
    if q.device.type != "cpu" or not (torch.is_grad_enabled() and q.requires_grad):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return F.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(v.dtype) @ v


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """F.dropout. On a CPU, one random number of 64 bits serves four elements, which takes a seventh of the time."""
    if not training or p == 0 or x.device.type != "cpu":
        return F.dropout(x, p, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = round(p * 2**16)  # how many of the 2^16 values of 16 bits drop an element
    keep = (bits[: x.numel()] >= dropped - 2**15).view(x.shape)
    return x * keep.to(x.dtype).mul_(2**16 / (2**16 - dropped))


def sample_categorical(p: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One sampled index per row of probabilities (..., V), by the inverse of the cumulative sum.

    torch.multinomial takes twenty times as long: it generates one random number per word of the vocabulary.
    """
    sums = p.cumsum(-1)
    threshold = torch.rand(sums.shape[:-1], generator=generator, device=p.device).unsqueeze(-1) * sums[..., -1:]
    return torch.searchsorted(sums, threshold, right=True).squeeze(-1).clamp_max(p.shape[-1] - 1)
