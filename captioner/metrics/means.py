"""A mean over words, nouns or captions, with its 95 % interval by bootstrap over images.

The words of one image are not independent of each other, so whole images are drawn, each with all that is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from captioner.metrics.bootstrap import interval, resample


@dataclass(frozen=True)
class Mean:
    """A value and its interval."""

    value: float
    low: float
    high: float


def mean(sums: ArrayLike, counts: ArrayLike) -> Mean | None:
    """sum of `sums` / sum of `counts`, which have a number an image; None where there is nothing to count."""
    statistics = np.stack([np.asarray(sums, np.float64), np.asarray(counts, np.float64)], axis=1)
    total, count = statistics.sum(axis=0)
    if not count:
        return None
    means = resample(statistics)
    means = means[means[:, 1] > 0]  # a draw may hold only images without a single word
    within = interval(means[:, 0] / means[:, 1])
    return Mean(float(total / count), within.low, within.high)


def mean_of(groups: Sequence[Sequence[float]]) -> Mean | None:
    """The mean of all values, which come in a group an image."""
    return mean([float(np.sum(group)) for group in groups], [len(group) for group in groups])
