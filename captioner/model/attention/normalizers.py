"""Normalizers: from the scores e_i of a map to its weights alpha_i, which are not negative and sum to 1.

    softmax    alpha_i = exp(e_i) / sum_j exp(e_j)          never 0
    entmax15   alpha_i = max(0, e_i / 2 - tau)^2            (Peters et al. 2019, with alpha = 1.5)
    sparsemax  alpha_i = max(0, e_i - tau)                  (Martins & Astudillo 2016)

tau is the number for which the weights sum to 1. Cells whose scores are too low get a weight of exactly 0.

tau is the root of a decreasing convex function, which Newton's method finds from the left without ever passing it. It
starts at a lower bound of tau. Five steps (sparsemax: nine) reached float32's precision for all scores that we tried,
also those made to be difficult, of up to 1,024 cells; STEPS has a reserve. Sorting the scores, as the package `entmax`
does, takes seven times as long on a CPU. A fixed number of steps of plain arithmetic also exports to ONNX as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Normalizer = Callable[[Tensor], Tensor]  # (..., L) to (..., L)
STEPS = {"entmax15": 7, "sparsemax": 12}


def softmax(scores: Tensor) -> Tensor:
    return F.softmax(scores, -1)


def entmax15(scores: Tensor) -> Tensor:
    return _apply(_Entmax15, scores)


def sparsemax(scores: Tensor) -> Tensor:
    return _apply(_Sparsemax, scores)


NORMALIZERS: dict[str, Normalizer] = {"softmax": softmax, "entmax15": entmax15, "sparsemax": sparsemax}


def _apply(function: type[_Entmax15] | type[_Sparsemax], scores: Tensor) -> Tensor:
    # Half precision has too few digits for sums over cells. Autocast's softmax returns float32 too.
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if torch.onnx.is_in_onnx_export() or not (torch.is_grad_enabled() and scores.requires_grad):
        return function.weights(scores)
    return function.apply(scores)  # type: ignore[no-untyped-call, no-any-return]


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def weights(scores: Tensor) -> Tensor:
        x = (scores - scores.amax(-1, keepdim=True)) / 2
        # No weight is above 1, so tau >= -1. And at mean - 1 / sqrt(L) the weights sum to 1 or more (Jensen).
        tau = (x.mean(-1, keepdim=True) - x.shape[-1] ** -0.5).clamp_min(-1)
        for _ in range(STEPS["entmax15"]):  # for |max(0, x - tau)| = 1: nearer to linear in tau than its square
            roots = (x - tau).clamp_min(0)
            length = torch.linalg.vector_norm(roots, dim=-1, keepdim=True)
            tau = tau + (length - 1) * length / roots.sum(-1, keepdim=True)
        alpha: Tensor = (x - tau).clamp_min(0).square()
        return alpha

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        alpha = _Entmax15.weights(scores)
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        root: Tensor = ctx.saved_tensors[0].sqrt()
        weighted = grad * root
        return weighted - root * (weighted.sum(-1, keepdim=True) / root.sum(-1, keepdim=True))


class _Sparsemax(torch.autograd.Function):
    @staticmethod
    def weights(scores: Tensor) -> Tensor:
        x = scores - scores.amax(-1, keepdim=True)
        tau = (x.mean(-1, keepdim=True) - 1 / x.shape[-1]).clamp_min(-1)
        for _ in range(STEPS["sparsemax"]):
            above = (x - tau).clamp_min(0)
            tau = tau + (above.sum(-1, keepdim=True) - 1) / above.sign().sum(-1, keepdim=True)
        alpha: Tensor = (x - tau).clamp_min(0)
        return alpha

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        alpha = _Sparsemax.weights(scores)
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        support: Tensor = ctx.saved_tensors[0].sign()
        weighted = grad * support
        return weighted - support * (weighted.sum(-1, keepdim=True) / support.sum(-1, keepdim=True))
