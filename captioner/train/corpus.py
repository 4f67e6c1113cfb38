"""Training captions as word numbers, and the plan of an epoch: the images and captions of each step.

A plan is a pure function of (seed, epoch), so a resumed run computes the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.data.caption_set import CaptionSet
from captioner.errors import CaptionerError
from captioner.text.vocabulary import Vocabulary

_POOL = 50  # steps whose images are sorted by length together: little padding, but still well mixed


@dataclass(frozen=True)
class Corpus:
    """The captions of a split as word numbers, in flat arrays: image i has captions first[i]..first[i+1]."""

    words: NDArray[np.int32]
    start: NDArray[np.int64]  # (captions + 1,): index of each caption's first word
    first: NDArray[np.int64]  # (images + 1,): number of each image's first caption

    @classmethod
    def of(cls, data: CaptionSet, vocabulary: Vocabulary, max_length: int) -> Corpus:
        words: list[int] = []
        start, first = [0], [0]
        for item in data:
            for caption in item.captions:
                numbers = vocabulary.encode(caption)[:max_length]
                if numbers:
                    words += numbers
                    start.append(len(words))
            first.append(len(start) - 1)
        return cls(np.array(words, np.int32), np.array(start, np.int64), np.array(first, np.int64))

    def __len__(self) -> int:
        return len(self.first) - 1

    def caption(self, number: int) -> NDArray[np.int32]:
        return self.words[self.start[number] : self.start[number + 1]]

    def captions_of(self, image: int) -> list[list[int]]:
        return [self.caption(c).tolist() for c in range(self.first[image], self.first[image + 1])]


@dataclass(frozen=True)
class StepPlan:
    """The images of one step and their captions, the longest caption of each image first."""

    images: NDArray[np.int64]  # (B,)
    captions: NDArray[np.int64]  # (B, K)

    def share(self, rank: int, world_size: int) -> StepPlan:
        """The part of one process."""
        return StepPlan(self.images[rank::world_size], self.captions[rank::world_size])


def plan(
    corpus: Corpus, *, images: int, captions: int, seed: int, epoch: int, world_size: int = 1, references: int = 1
) -> list[StepPlan]:
    """The steps of an epoch. Each image with at least `references` captions is in one step.

    Images with fewer than `captions` captions are in separate steps, with up to twice as many images, so that no
    caption is used twice in an epoch and no row is empty. In a step all processes have the same number of images. To
    make that so, up to `world_size` - 1 images are left out at the end of a pool; another epoch uses them.
    """
    if images < world_size:
        raise CaptionerError(
            f"training.images={images} is less than the number of processes, {world_size}; give at least one image each"
        )
    rng = np.random.default_rng([seed, epoch, 0xCA])
    counts = np.diff(corpus.first)
    lengths = np.diff(corpus.start)
    steps: list[StepPlan] = []
    usable = np.minimum(counts, captions)
    for k in range(1, captions + 1):
        members = np.flatnonzero((usable == k) & (counts >= references))
        if not len(members):
            continue
        rng.shuffle(members)
        sampled = np.stack([rng.permutation(counts[i])[:k] + corpus.first[i] for i in members])  # (members, k)
        sampled = np.take_along_axis(sampled, np.argsort(-lengths[sampled], 1, kind="stable"), 1)
        size = images * min(2, captions // k)
        size -= size % world_size
        for begin in range(0, len(members), _POOL * size):
            pool = slice(begin, begin + _POOL * size)
            order = np.argsort(lengths[sampled[pool]].sum(1), kind="stable")
            pool_images, pool_captions = members[pool][order], sampled[pool][order]
            count = len(pool_images)
            for start in range(0, count, size):
                end = start + size if start + size <= count else count - count % world_size
                if end > start:
                    steps.append(StepPlan(pool_images[start:end], pool_captions[start:end]))
    return [steps[i] for i in rng.permutation(len(steps))]


def tensors(
    captions: Sequence[Sequence[Sequence[int] | NDArray[np.int32]]], vocabulary: Vocabulary
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Inputs, targets (B, K, C) and lengths (B, K) of K captions for each of B images."""
    lengths = np.array([[len(s) + 1 for s in of_image] for of_image in captions], np.int64)  # with the end token
    shape = (*lengths.shape, int(lengths.max()))
    inputs = np.full(shape, vocabulary.pad, np.int64)
    targets = np.full(shape, vocabulary.pad, np.int64)
    inputs[:, :, 0] = vocabulary.start
    for b, of_image in enumerate(captions):
        for k, words in enumerate(of_image):
            inputs[b, k, 1 : len(words) + 1] = words
            targets[b, k, : len(words)] = words
            targets[b, k, len(words)] = vocabulary.end
    return inputs, targets, lengths
