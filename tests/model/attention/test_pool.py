"""Attention pooling, worked out by hand."""

from __future__ import annotations

from math import exp, sqrt

import pytest
import torch

from captioner.model.attention.pool import AttentionPool

ANNOTATIONS = torch.tensor([[[1.0, 2.0], [-1.0, 0.5]]], dtype=torch.float64)


def test_attention_pooling_by_hand():
    pool = AttentionPool(2).double()
    with torch.no_grad():
        pool.query.copy_(torch.tensor([1.0, -1.0]))
    first = exp((1 - 2) / sqrt(2)) / (exp((1 - 2) / sqrt(2)) + exp((-1 - 0.5) / sqrt(2)))
    expected = [first - (1 - first), 2 * first + 0.5 * (1 - first)]
    assert pool(ANNOTATIONS)[0, 0].tolist() == pytest.approx(expected)
