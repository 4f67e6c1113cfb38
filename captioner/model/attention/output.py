"""AttentionOutput: where the decoder attended at one step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class AttentionOutput:
    """The attention weights of one step, for B images with K captions or hypotheses each."""

    alpha: Tensor  # (B, K, L): attention weights
    gate: Tensor  # (B, K): how much the context vector counts, 0 to 1
    cell: Tensor | None = None  # (B, K): the sampled or likeliest cell; None for the expectation
    sampled: Tensor | None = None  # (B, K) bool: rows whose context vector is that cell, not the expectation
    scores: Tensor | None = None  # (B, K, L): e, if alpha is their softmax; None for several heads or attention steps


def mean_attention(first: AttentionOutput, second: AttentionOutput) -> AttentionOutput:
    """The attention of a word with two attention steps."""
    alpha, gate = (first.alpha + second.alpha) / 2, (first.gate + second.gate) / 2
    return AttentionOutput(alpha, gate, second.cell, second.sampled)
