"""Bootstrap over images: how far a score, or the difference of two, moves with the choice of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLES, LEVEL = 1000, 0.95
_BLOCK = 4_000_000  # image counts held at a time


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """How much higher the first system scores; `p` is how often chance alone would show a gap as large."""

    difference: float
    interval: Interval
    p: float


def resample(statistics: NDArray[np.float64], *, samples: int = SAMPLES, seed: int = 0) -> NDArray[np.float64]:
    """The mean row of each of `samples` sets of images drawn with replacement; (images, k) -> (samples, k).

    The same seed draws the same sets of images, which makes two systems comparable draw by draw.
    """
    blocks = _image_counts(len(statistics), samples, np.random.default_rng(seed))
    return np.concatenate([counts @ statistics for counts in blocks]) / len(statistics)


def _image_counts(images: int, samples: int, generator: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """How often each image is in each set, some sets at a time."""
    at_once = max(1, _BLOCK // images)
    for begin in range(0, samples, at_once):
        drawn = generator.integers(0, images, size=(min(at_once, samples - begin), images))
        drawn += np.arange(len(drawn))[:, None] * images
        counts = np.bincount(drawn.ravel(), minlength=len(drawn) * images)
        yield counts.reshape(len(drawn), images).astype(np.float64)


def interval(draws: NDArray[np.float64], level: float = LEVEL) -> Interval:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def difference(first: NDArray[np.float64], second: NDArray[np.float64], observed: float) -> Difference:
    """From the draws of two systems on the same sets of images."""
    gaps = first - second
    above, below = np.mean(gaps >= 0), np.mean(gaps <= 0)
    return Difference(observed, interval(gaps), float(min(1.0, 2 * min(above, below))))
