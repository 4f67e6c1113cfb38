"""Reliance: what the words relied on, by occlusion, and whether attention shows it.

For the content words of some captions, windows of the picture are blurred (`captioner.evidence.occlusion`). The maps of
what the words relied on are compared with the attention, and both with boxes. Habit, the share of a word's probability
that is left without the picture, is also given for objects that are in the picture and for objects that are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from captioner.caption import Caption
from captioner.data.caption_set import Item
from captioner.evaluation.attention_maps import Map
from captioner.evaluation.grounding import Grounding, grounded_nouns, grounding
from captioner.evaluation.hallucination import MentionedObject, mentioned_objects
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
class ObjectHabit:
    """Habit of nouns that name an object. Means are over nouns, intervals over images."""

    nouns: int
    habit: Mean  # share of the probability that is left without the picture, 0 to 1
    marked: Mean  # share of the nouns that come from habit


@dataclass(frozen=True)
class Reliance:
    """Means are over content words, intervals over images."""

    images: int
    words: int
    correlation: Mean  # rank correlation of attention and reliance
    habit: Mean  # share of the words that come from habit
    relied: Grounding | None  # the maps of reliance against boxes
    attended: Grounding | None  # the attention of the same words against boxes
    present: ObjectHabit | None  # objects that the boxes or the references have, as for CHAIR
    absent: ObjectHabit | None  # objects that neither has


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
    shares: list[list[float]] = []  # of the probability of each word: what is left without the picture
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
        shares.append([min(1.0, float(share)) for share in kept])
        maps.append([as_map(relied) for relied in occluded.relied])
        frames.append(picture.frame)
        progress(number + 1)
    correlation, habit = mean_of(correlations), mean_of(habits)
    if correlation is None or habit is None:
        return None
    boxes = [item.boxes for item in items]
    objects = mentioned_objects(items, captions) or [[] for _ in items]
    return Reliance(
        len(items),
        sum(map(len, habits)),
        correlation,
        habit,
        grounding(*grounded_nouns(captions, boxes, frames, maps)),
        grounding(*grounded_nouns(captions, boxes, frames)),
        object_habit(objects, shares, present=True),
        object_habit(objects, shares, present=False),
    )


def object_habit(
    objects: Sequence[Sequence[MentionedObject]], shares: Sequence[Sequence[float]], *, present: bool
) -> ObjectHabit | None:
    """Habit of the objects that are, or are not, in the picture; `shares` has one number per word of each caption.

    The habit of a noun of several words is their mean. None if there is no such object.
    """
    habits = [
        [float(np.mean(words[noun.first : noun.last])) for noun in found if noun.present == present]
        for found, words in zip(objects, shares, strict=True)
    ]
    habit = mean_of(habits)
    marked = mean_of([[float(value >= HABIT) for value in image] for image in habits])
    if habit is None or marked is None:
        return None
    return ObjectHabit(sum(map(len, habits)), habit, marked)


def as_map(relied: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> Map:
    """Falls of the log-probability as a map that sums to 1: rises count as 0. Even if there is no fall."""
    positive = np.maximum(relied.astype(np.float64), 0)
    total = positive.sum()
    return positive / total if total > 0 else np.full(relied.shape, 1 / relied.size)
