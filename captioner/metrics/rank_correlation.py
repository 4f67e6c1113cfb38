"""Spearman's rank correlation. Equal values share the mean of their ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float | None:
    """The correlation of the ranks, -1 to 1. None if all values of one side are equal."""
    a, b = _ranks(np.ravel(one)), _ranks(np.ravel(other))
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / scale if scale else None


def _ranks(values: NDArray[np.generic]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)
