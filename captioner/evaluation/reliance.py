"""Reliance: what the words relied on, by occlusion, and whether attention shows it.

For the content words of some captions, windows of the picture are blurred (`captioner.evidence.occlusion`). The maps of
what the words relied on are compared with the attention, and both with boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from captioner.caption import Caption
from captioner.data.caption_set import Item
from captioner.evaluation.attention_maps import Map
from captioner.evaluation.grounding import Grounding, grounded_nouns, grounding
from captioner.evidence.occlusion import occlusion
from captioner.images.frame import Frame
from captioner.images.reading import load_for_model
from captioner.inference.backend import Backend
from captioner.inference.search import SearchOptions
from captioner.metrics.means import Mean, mean_of
from captioner.metrics.rank_correlation import rank_correlation
from captioner.text.nouns import is_content_word

HABIT = 0.5  # a word that keeps this share of its probability without the picture comes from habit


@dataclass(frozen=True)
class Reliance:
    """Means are over content words, intervals over images."""

    images: int
    words: int
    correlation: Mean  # rank correlation of attention and reliance
    habit: Mean  # share of the words that come from habit
    relied: Grounding | None  # the maps of reliance against boxes
    attended: Grounding | None  # the attention of the same words against boxes


def reliance(
    backend: Backend,
    items: Sequence[Item],
    captions: Sequence[Caption],
    options: SearchOptions,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Reliance | None:
    """None if the captions have no content words."""
    correlations: list[list[float]] = []
    habits: list[list[float]] = []
    maps: list[list[Map]] = []
    frames: list[Frame] = []
    for number, (item, caption) in enumerate(zip(items, captions, strict=True)):
        picture, pixels = load_for_model(item.path, backend.image_size)
        index = backend.vocabulary.index
        words = [index.get(word.text, backend.vocabulary.unk) for word in caption.words]
        occluded = occlusion(backend, pixels, words, options, threads=threads)
        content = [i for i, word in enumerate(caption.words) if is_content_word(word.text)]
        ranks = [rank_correlation(caption.words[i].alpha, occluded.relied[i]) for i in content]
        correlations.append([rank for rank in ranks if rank is not None])
        kept = np.exp(occluded.blurred - occluded.seen)
        habits.append([float(kept[i] >= HABIT) for i in content])
        maps.append([as_map(relied) for relied in occluded.relied])
        frames.append(picture.frame)
        progress(number + 1)
    correlation, habit = mean_of(correlations), mean_of(habits)
    if correlation is None or habit is None:
        return None
    boxes = [item.boxes for item in items]
    return Reliance(
        len(items),
        sum(map(len, habits)),
        correlation,
        habit,
        grounding(*grounded_nouns(captions, boxes, frames, maps)),
        grounding(*grounded_nouns(captions, boxes, frames)),
    )


def as_map(relied: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Map:
    """Falls of the log-probability as a map that sums to 1: rises count as 0. Even if there is no fall."""
    positive = np.maximum(relied.astype(np.float64), 0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(relied.shape, 1 / relied.size)
