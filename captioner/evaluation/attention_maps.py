"""Statistics of attention maps alone, without boxes: entropy, movement from word to word, difference between images.

The map of the end token is never counted. Where a hard model chose a cell, that cell is what it looked at.
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

# Maps that stand still: from a word to the next, less than this part of the attention moves. A model whose scores
# do not depend on what was said has exactly 0; trained models here have 0.2 to 0.7 (docs/evaluate.md).
STILL = 0.05


def attention_map(word: Word) -> Map:
    """Where a word looked: the cell a hard model chose, otherwise alpha."""
    if word.cell is None:
        return word.alpha.astype(np.float64)
    single = np.zeros(word.alpha.shape)
    single[word.cell] = 1.0
    return single


def distance(one: Map, other: Map) -> float:
    """Total variation: the part of the attention that has to move to make one map the other, 0 to 1."""
    return 0.5 * float(np.abs(one - other).sum())


@dataclass(frozen=True)
class MapStatistics:
    """Maps over whole captions; means are over words, intervals over images."""

    captions: int
    cells: int
    entropy: Mean  # nats; log(cells) is an even spread
    movement: Mean | None  # distance from a word's map to the next word's; None where no caption has two words
    difference: Mean | None  # distance from a word's map to the map at the same position in another image

    @property
    def spread(self) -> float:
        """Entropy as a share of an even spread's."""
        return self.entropy.value / math.log(self.cells) if self.cells > 1 else 0.0

    @property
    def alarms(self) -> list[str]:
        """What is wrong with the maps as a whole, a sentence each."""
        found = []
        flat = f"; they are flat too (entropy {self.spread:.0%} of an even spread)" if self.spread > 0.98 else ""
        if self.movement is not None and self.movement.value < STILL:
            found.append(
                f"attention stands still: {self.movement.value:.1%} of it moves from a word to the next{flat}. "
                "The maps say nothing about single words."
            )
        if self.difference is not None and self.difference.value < STILL:
            found.append(
                f"attention does not depend on the picture: maps of different pictures differ by "
                f"{self.difference.value:.1%}{flat}."
            )
        return found


def map_statistics(captions: Sequence[Caption]) -> MapStatistics | None:
    """None where no caption has a word."""
    spoken = [caption for caption in captions if caption.words]
    if not spoken:
        return None
    maps = [[attention_map(word) for word in caption.words] for caption in spoken]
    # Entropy is of alpha even where a cell was chosen: that of a single cell is always 0.
    entropy = mean_of([[word.entropy for word in caption.words] for caption in spoken])
    assert entropy is not None
    moved = [[distance(a, b) for a, b in pairwise(some)] for some in maps]
    others = [*maps[1:], maps[0]] if len(maps) > 1 else []
    differing = [
        [distance(a, b) for a, b in zip(some, other, strict=False)] for some, other in zip(maps, others, strict=False)
    ]
    return MapStatistics(len(spoken), int(maps[0][0].size), entropy, mean_of(moved), mean_of(differing))
