"""Training captions as numbers, and the plan of an epoch: which images with which captions make a step.

A plan is a pure function of (seed, epoch): a resumed run makes it again and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.data.caption_set import CaptionSet
from captioner.errors import CaptionerError
from captioner.text.vocabulary import Vocabulary

_POOL = 50  # steps whose images are sorted by length together: little padding, yet well mixed


@dataclass(frozen=True)
class Corpus:
    """Captions of a split as word numbers, flat: image i has captions first[i]..first[i+1]."""

    words: NDArray[np.int32]
    start: NDArray[np.int64]  # (captions + 1,): where each caption's words begin
    first: NDArray[np.int64]  # (images + 1,): where each image's captions begin

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

    def share(self, rank: int, world: int) -> StepPlan:
        """This process's part."""
        return StepPlan(self.images[rank::world], self.captions[rank::world])


def plan(
    corpus: Corpus, *, images: int, captions: int, seed: int, epoch: int, world: int = 1, least: int = 1
) -> list[StepPlan]:
    """The steps of an epoch: every image with at least `least` captions once.

    Images with fewer than `captions` captions make steps of their own, with up to twice the images, so
    that no caption is fed twice in an epoch and no row is empty. A step has the same number of images for
    each of `world` processes: where the last one of a pool can't, up to `world` - 1 images wait for another
    epoch.
    """
    if images < world:
        raise CaptionerError(f"training.images={images} leaves some of the {world} processes without any")
    rng = np.random.default_rng([seed, epoch, 0xCA])
    counts = np.diff(corpus.first)
    lengths = np.diff(corpus.start)
    steps: list[StepPlan] = []
    usable = np.minimum(counts, captions)
    for k in range(1, captions + 1):
        members = np.flatnonzero((usable == k) & (counts >= least))
        if not len(members):
            continue
        rng.shuffle(members)
        drawn = np.stack([rng.permutation(counts[i])[:k] + corpus.first[i] for i in members])  # (members, k)
        drawn = np.take_along_axis(drawn, np.argsort(-lengths[drawn], 1, kind="stable"), 1)
        size = images * min(2, captions // k)
        size -= size % world
        for begin in range(0, len(members), _POOL * size):
            pool = slice(begin, begin + _POOL * size)
            order = np.argsort(lengths[drawn[pool]].sum(1), kind="stable")
            chosen, said = members[pool][order], drawn[pool][order]
            for at in range(0, len(chosen), size):
                end = at + size if at + size <= len(chosen) else len(chosen) - len(chosen) % world
                if end > at:
                    steps.append(StepPlan(chosen[at:end], said[at:end]))
    return [steps[i] for i in rng.permutation(len(steps))]


def tensors(
    sentences: Sequence[Sequence[Sequence[int] | NDArray[np.int32]]], vocabulary: Vocabulary
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Inputs, targets (B, K, C) and lengths (B, K) of K sentences for each of B images."""
    lengths = np.array([[len(s) + 1 for s in of_image] for of_image in sentences], np.int64)  # with the end token
    shape = (*lengths.shape, int(lengths.max()))
    inputs = np.full(shape, vocabulary.pad, np.int64)
    targets = np.full(shape, vocabulary.pad, np.int64)
    inputs[:, :, 0] = vocabulary.start
    for b, of_image in enumerate(sentences):
        for k, words in enumerate(of_image):
            inputs[b, k, 1 : len(words) + 1] = words
            targets[b, k, : len(words)] = words
            targets[b, k, len(words)] = vocabulary.end
    return inputs, targets, lengths
