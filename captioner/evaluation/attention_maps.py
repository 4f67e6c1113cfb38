"""Statistics of attention maps without boxes: entropy, movement from word to word, difference between images.

The map of the end token is never counted. If a hard model sampled a cell, its map is that cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption, Word
from captioner.metrics.means import Mean, mean_of

Map = NDArray[np.float64]  # (rows, cols), sums to 1

# An alarm is raised if less than this share of the attention moves from one word to the next. A model whose attention
# ignores the words so far has exactly 0. The shipped models have 0.2 to 0.7 (docs/evaluate.md).
STILL = 0.05


def attention_map(word: Word) -> Map:
    """The map of a word: the sampled cell of a hard model, else alpha."""
    if word.cell is None:
        return word.alpha.astype(np.float64)
    single = np.zeros(word.alpha.shape)
    single[word.cell] = 1.0
    return single


def distance(one: Map, other: Map) -> float:
    """Total variation distance, 0 to 1: the share of the attention that has to move to turn one map into the other."""
    return 0.5 * float(np.abs(one - other).sum())


@dataclass(frozen=True)
class MapStatistics:
    """Statistics of all maps. Means are over words, intervals over images."""

    captions: int
    cells: int
    entropy: Mean  # nats; log(cells) for an even map
    movement: Mean | None  # distance between the maps of consecutive words; None if no caption has two words
    difference: Mean | None  # distance to the map at the same position of another image's caption

    @property
    def spread(self) -> float:
        """Entropy relative to that of an even map."""
        return self.entropy.value / math.log(self.cells) if self.cells > 1 else 0.0

    @property
    def alarms(self) -> list[str]:
        """One sentence for each problem of the maps as a whole."""
        alarms = []
        flat = f"; the maps are flat too (entropy {self.spread:.0%} of an even map)" if self.spread > 0.98 else ""
        if self.movement is not None and self.movement.value < STILL:
            alarms.append(
                f"attention stands still: {self.movement.value:.1%} of it moves from one word to the next{flat}. "
                "The maps say nothing about single words."
            )
        if self.difference is not None and self.difference.value < STILL:
            alarms.append(
                f"attention does not depend on the picture: maps of different pictures differ by "
                f"{self.difference.value:.1%}{flat}."
            )
        return alarms


def map_statistics(captions: Sequence[Caption]) -> MapStatistics | None:
    """None if no caption has a word."""
    with_words = [caption for caption in captions if caption.words]
    if not with_words:
        return None
    maps = [[attention_map(word) for word in caption.words] for caption in with_words]
    # Entropy is that of alpha even if a cell was sampled: the entropy of a single cell is always 0.
    entropy = mean_of([[word.entropy for word in caption.words] for caption in with_words])
    assert entropy is not None
    movements = [[distance(a, b) for a, b in pairwise(caption_maps)] for caption_maps in maps]
    next_image = [*maps[1:], maps[0]] if len(maps) > 1 else []
    differences = [
        [distance(a, b) for a, b in zip(caption_maps, other_maps, strict=False)]
        for caption_maps, other_maps in zip(maps, next_image, strict=False)
    ]
    return MapStatistics(len(with_words), int(maps[0][0].size), entropy, mean_of(movements), mean_of(differences))
