"""Bootstrap over images: how much a score, or the difference of two scores, depends on the choice of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLES, LEVEL = 1000, 0.95
_BLOCK = 4_000_000  # image counts in memory at a time


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """How much higher the first system scores. `p` is the two-sided bootstrap p-value."""

    difference: float
    interval: Interval
    p: float


def resample(statistics: NDArray[np.float64], *, samples: int = SAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """Sample images with replacement and average their rows; (images, k) -> (samples, k).

    The same seed gives the same samples of images, so two systems can be compared sample by sample.
    """
    blocks = _image_counts(len(statistics), samples, np.random.default_rng(seed))
    return np.concatenate([counts @ statistics for counts in blocks]) / len(statistics)


def _image_counts(images: int, samples: int, generator: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each image is in each sample, in blocks of samples that fit into memory."""
    at_once = max(1, _BLOCK // images)
    for begin in range(0, samples, at_once):
        indices = generator.integers(0, images, size=(min(at_once, samples - begin), images))
        indices += np.arange(len(indices))[:, None] * images
        counts = np.bincount(indices.ravel(), minlength=len(indices) * images)
        yield counts.reshape(len(indices), images).astype(np.float64)


def interval(values: NDArray[np.float64], level: float = LEVEL) -> Interval:
    """The interval that holds the middle 95 % of the bootstrap values."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def difference(first: NDArray[np.float64], second: NDArray[np.float64], observed: float) -> Difference:
    """From the bootstrap values of two systems on the same samples of images."""
    gaps = first - second
    above, below = np.mean(gaps >= 0), np.mean(gaps <= 0)
    return Difference(observed, interval(gaps), float(min(1.0, 2 * min(above, below))))
