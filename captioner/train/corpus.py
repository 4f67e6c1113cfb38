"""Training captions as word numbers, and the plan of an epoch: the images and captions of each batch.

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

_POOL = 50  # batches whose images are sorted by length together: little padding, but still well mixed


@dataclass(frozen=True)
class Corpus:
    """The captions of a split as word numbers, in flat arrays.

    Image i has the captions from image_starts[i] up to, but not including, image_starts[i + 1].
    """

    words: NDArray[np.int32]
    caption_starts: NDArray[np.int64]  # (captions + 1,): index of each caption's first word in `words`
    image_starts: NDArray[np.int64]  # (images + 1,): number of each image's first caption

    @classmethod
    def of(cls, data: CaptionSet, vocabulary: Vocabulary, max_length: int) -> Corpus:
        words: list[int] = []
        caption_starts, image_starts = [0], [0]
        for item in data:
            for caption in item.captions:
                numbers = vocabulary.encode(caption)[:max_length]
                if numbers:
                    words += numbers
                    caption_starts.append(len(words))
            image_starts.append(len(caption_starts) - 1)
        return cls(np.array(words, np.int32), np.array(caption_starts, np.int64), np.array(image_starts, np.int64))

    def __len__(self) -> int:
        return len(self.image_starts) - 1

    def caption(self, number: int) -> NDArray[np.int32]:
        return self.words[self.caption_starts[number] : self.caption_starts[number + 1]]

    def numbers_of(self, image: int) -> range:
        """The numbers of an image's captions."""
        return range(self.image_starts[image], self.image_starts[image + 1])

    def captions_of(self, image: int) -> list[list[int]]:
        return [self.caption(number).tolist() for number in self.numbers_of(image)]


@dataclass(frozen=True)
class Batch:
    """The images of one batch and their captions, the longest caption of each image first."""

    images: NDArray[np.int64]  # (B,)
    captions: NDArray[np.int64]  # (B, K)

    def for_process(self, rank: int, world_size: int) -> Batch:
        """The part of one process."""
        return Batch(self.images[rank::world_size], self.captions[rank::world_size])


def plan_epoch(
    corpus: Corpus, *, images: int, captions: int, seed: int, epoch: int, world_size: int = 1, references: int = 1
) -> list[Batch]:
    """The batches of an epoch. Each image with at least `references` captions is in one batch.

    Images with fewer than `captions` captions are in separate batches, with up to twice as many images, so that no
    caption is used twice in an epoch and no row is empty. In a batch all processes have the same number of images. To
    make that so, up to `world_size` - 1 images are left out at the end of a pool; another epoch uses them.
    """
    if images < world_size:
        raise CaptionerError(
            f"training.images={images} is less than the number of processes, {world_size}; give at least one image each"
        )
    rng = np.random.default_rng([seed, epoch, 0xCA])
    counts = np.diff(corpus.image_starts)
    lengths = np.diff(corpus.caption_starts)
    batches: list[Batch] = []
    usable = np.minimum(counts, captions)
    for k in range(1, captions + 1):
        members = np.flatnonzero((usable == k) & (counts >= references))
        if not len(members):
            continue
        rng.shuffle(members)
        sampled = np.stack([rng.permutation(counts[i])[:k] + corpus.image_starts[i] for i in members])  # (members, k)
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
                    batches.append(Batch(pool_images[start:end], pool_captions[start:end]))
    return [batches[i] for i in rng.permutation(len(batches))]


def spread(positions: range, batches: int, *, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Shuffled positions, in as many parts as an epoch has batches."""
    shuffled = np.random.default_rng([seed, epoch, 0xB0]).permutation(np.array(positions, np.int64))
    return np.array_split(shuffled, batches)


def padded_arrays(
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
