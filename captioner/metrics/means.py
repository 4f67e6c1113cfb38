"""A mean over words, nouns or captions, with its 95 % interval by bootstrap over images.

The words of one image depend on each other. Therefore whole images are sampled, each with all its words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from captioner.metrics.bootstrap import interval, resample


@dataclass(frozen=True)
class Mean:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float


def mean(sums: ArrayLike, counts: ArrayLike) -> Mean | None:
    """Sum of `sums` / sum of `counts`, which have one number per image. None if the counts sum to 0."""
    statistics = np.stack([np.asarray(sums, np.float64), np.asarray(counts, np.float64)], axis=1)
    total, count = statistics.sum(axis=0)
    if not count:
        return None
    means = resample(statistics)
    means = means[means[:, 1] > 0]  # a sample may consist of images without words
    within = interval(means[:, 0] / means[:, 1])
    return Mean(float(total / count), within.low, within.high)


def mean_of(groups: Sequence[Sequence[float]]) -> Mean | None:
    """The mean of all values; `groups` has one list of values per image."""
    return mean([float(np.sum(group)) for group in groups], [len(group) for group in groups])
