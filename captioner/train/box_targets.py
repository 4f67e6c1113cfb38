"""The boxes of the training images as targets: where the noun of a word is, and which categories cover a cell.

A group is the boxes that one noun names: all boxes of one category in one image. Maps of groups are computed for each
batch, because training mirrors and crops the pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.data.box_coverage import relative_coverage
from captioner.data.caption_set import Box, CaptionSet
from captioner.errors import CaptionerError
from captioner.images.decoding import inspect
from captioner.images.frame import Frame
from captioner.text.nouns import mentions
from captioner.text.vocabulary import Vocabulary
from captioner.train.corpus import Corpus
from captioner.train.grids import Views


@dataclass(frozen=True)
class BatchBoxes:
    """All groups of the images of a batch, in their views."""

    groups: NDArray[np.int64]  # (G,): their numbers
    rows: NDArray[np.int64]  # (G,): the number of the group's image in the batch
    labels: NDArray[np.int16]  # (G,)
    maps: NDArray[np.float32]  # (G, L): the share of each cell that a group covers

    def maps_of(self, groups: NDArray[np.int64]) -> NDArray[np.float32]:
        """The maps of groups of this batch, by their numbers."""
        order = np.argsort(self.groups)
        return self.maps[order[np.searchsorted(self.groups, groups, sorter=order)]]

    def cell_labels(self, images: int, labels: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(B, L, categories): the share of each cell that each category covers; (B,): which images have boxes."""
        shares = np.zeros((images, labels, self.maps.shape[1]), np.float32)
        shares[self.rows, self.labels] = self.maps
        annotated = np.zeros(images, np.bool_)
        annotated[self.rows] = True
        return shares.transpose(0, 2, 1), annotated


@dataclass(frozen=True)
class BoxTargets:
    """Groups of boxes, and the group that each word of the corpus names."""

    labels: tuple[str, ...]  # names of the categories
    boxes: NDArray[np.float32]  # (N, 4): left, top, right, bottom, 0 to 1
    group_starts: NDArray[np.int64]  # (groups + 1,): index of each group's first box
    group_labels: NDArray[np.int16]  # (groups,): index into `labels`
    image_starts: NDArray[np.int64]  # (images + 1,): number of each image's first group
    word_groups: NDArray[np.int32]  # for every word of the corpus: the number of its group, or -1

    @classmethod
    def of(cls, data: CaptionSet, corpus: Corpus, vocabulary: Vocabulary) -> BoxTargets:
        """From a set with boxes and its captions as numbers."""
        labels = tuple(sorted({box.label for item in data for box in item.boxes}))
        if not labels:
            raise CaptionerError(f"{data.name}: no image has a box")
        numbers = {label: number for number, label in enumerate(labels)}
        boxes: list[tuple[float, float, float, float]] = []
        group_starts, image_starts = [0], [0]
        group_labels: list[int] = []
        word_groups = np.full(len(corpus.words), -1, np.int32)
        for image, item in enumerate(data):
            groups: dict[str, int] = {}
            if item.boxes:
                frame = inspect(item.path)
                for label in dict.fromkeys(box.label for box in item.boxes):
                    groups[label] = len(group_labels)
                    boxes += [_relative(box, frame) for box in item.boxes if box.label == label]
                    group_starts.append(len(boxes))
                    group_labels.append(numbers[label])
                for caption in range(corpus.image_starts[image], corpus.image_starts[image + 1]):
                    start, end = corpus.caption_starts[caption : caption + 2]
                    words = [vocabulary.words[number] for number in corpus.words[start:end]]
                    word_groups[start:end] = groups_of_words(words, groups, labels)
            image_starts.append(len(group_labels))
        return cls(
            labels,
            np.array(boxes, np.float32),
            np.array(group_starts, np.int64),
            np.array(group_labels, np.int16),
            np.array(image_starts, np.int64),
            word_groups,
        )

    def groups_of_captions(self, corpus: Corpus, captions: NDArray[np.int64]) -> list[NDArray[np.int32]]:
        """The groups of the words of each caption, row by row, for captions (B, K) of the corpus."""
        starts = corpus.caption_starts
        return [self.word_groups[starts[number] : starts[number + 1]] for number in captions.flat]

    def groups_of_texts(self, images: Iterable[int], captions: Iterable[Sequence[str]]) -> list[NDArray[np.int32]]:
        """The groups of the words of captions that are not in the corpus, one image per caption."""
        return [
            np.array(groups_of_words(words, self._groups(image), self.labels), np.int32)
            for image, words in zip(images, captions, strict=True)
        ]

    def categories(self, image: int) -> list[str]:
        """The categories that have boxes in an image."""
        return list(self._groups(image))

    def batch(self, images: NDArray[np.int64], views: Views) -> BatchBoxes:
        """The groups of these images of the corpus, in their views."""
        starts, ends = self.image_starts[images], self.image_starts[images + 1]
        groups = np.concatenate([np.arange(start, end) for start, end in zip(starts, ends, strict=True)])
        rows = np.repeat(np.arange(len(images)), ends - starts)
        maps = np.zeros((len(groups), views.rows * views.cols), np.float32)
        for i, (group, row) in enumerate(zip(groups, rows, strict=True)):
            boxes = self.boxes[self.group_starts[group] : self.group_starts[group + 1]].astype(np.float64)
            if views.mirrored[row]:
                boxes = np.stack([1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]], 1)
            left, top, right, bottom = views.windows[row]
            boxes = (boxes - (left, top, left, top)) / (right - left, bottom - top, right - left, bottom - top)
            maps[i] = relative_coverage(boxes, views.rows, views.cols).reshape(-1)
        return BatchBoxes(groups, rows, self.group_labels[groups], maps)

    def _groups(self, image: int) -> dict[str, int]:
        """The groups of an image by their category."""
        return {
            self.labels[self.group_labels[group]]: group
            for group in range(self.image_starts[image], self.image_starts[image + 1])
        }


def groups_of_words(words: Sequence[str], groups: dict[str, int], labels: Sequence[str]) -> list[int]:
    """The group that each word of a caption names, or -1. All words of a phrase name its group."""
    named = [-1] * len(words)
    for mention in mentions(words, labels) if groups else ():
        for position in range(mention.first, mention.last):
            named[position] = groups.get(mention.label, -1)
    return named


def _relative(box: Box, frame: Frame) -> tuple[float, float, float, float]:
    return box.left / frame.width, box.top / frame.height, box.right / frame.width, box.bottom / frame.height
