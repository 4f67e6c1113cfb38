"""The boxes of the training images as targets: where the noun of a word is, and which categories cover a cell.

A group is the boxes that one noun names: all boxes of one category in one image. Groups are kept as numbers, and maps
are computed for each batch, because training mirrors and crops the pictures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.data.box_coverage import coverage
from captioner.data.caption_set import Box, CaptionSet
from captioner.errors import CaptionerError
from captioner.images.decoding import inspect
from captioner.images.frame import Frame
from captioner.text.nouns import mentions
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.train.corpus import Corpus
from captioner.train.grids import Views

_UNIT = Frame(1, 1)  # boxes are kept as shares of the picture's sides


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
        caption = 0
        for item in data:
            groups: dict[str, int] = {}
            frame = inspect(item.path) if item.boxes else _UNIT
            for label in dict.fromkeys(box.label for box in item.boxes):
                groups[label] = len(group_labels)
                boxes += [_relative(box, frame) for box in item.boxes if box.label == label]
                group_starts.append(len(boxes))
                group_labels.append(numbers[label])
            image_starts.append(len(group_labels))
            for text in item.captions:
                if not vocabulary.encode(text):  # Corpus leaves such captions out
                    continue
                start, end = corpus.caption_starts[caption : caption + 2]
                caption += 1
                if groups:
                    named = groups_of_words(tokenize(text), groups, labels)
                    word_groups[start:end] = named[: end - start]
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

    def maps(self, groups: NDArray[np.int64], rows: NDArray[np.int64], views: Views) -> NDArray[np.float32]:
        """(N, L): the share of each cell that a group covers, in the view of the batch's image number `rows`."""
        return np.stack([self._map(int(group), int(row), views) for group, row in zip(groups, rows, strict=True)])

    def cell_labels(self, images: NDArray[np.int64], views: Views) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(B, L, categories): the share of each cell that each category covers; (B,): which images have boxes."""
        shares = np.zeros((len(images), views.rows * views.cols, len(self.labels)), np.float32)
        for row, image in enumerate(images):
            for group in range(self.image_starts[image], self.image_starts[image + 1]):
                shares[row, :, self.group_labels[group]] = self._map(group, row, views)
        return shares, self.image_starts[images + 1] > self.image_starts[images]

    def _groups(self, image: int) -> dict[str, int]:
        """The groups of an image by their category."""
        return {
            self.labels[self.group_labels[group]]: group
            for group in range(self.image_starts[image], self.image_starts[image + 1])
        }

    def _map(self, group: int, row: int, views: Views) -> NDArray[np.float32]:
        boxes = self.boxes[self.group_starts[group] : self.group_starts[group + 1]].astype(np.float64)
        if views.mirrored[row]:
            boxes = np.stack([1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]], 1)
        left, top, right, bottom = views.windows[row]
        boxes = (boxes - (left, top, left, top)) / (right - left, bottom - top, right - left, bottom - top)
        shares = coverage([Box("", *box) for box in boxes.tolist()], _UNIT, views.rows, views.cols)
        return shares.astype(np.float32).reshape(-1)


def groups_of_words(words: Sequence[str], groups: dict[str, int], labels: Sequence[str]) -> list[int]:
    """The group that each word of a caption names, or -1. All words of a phrase name its group."""
    named = [-1] * len(words)
    for mention in mentions(words, labels) if groups else ():
        for position in range(mention.first, mention.last):
            named[position] = groups.get(mention.label, -1)
    return named


def _relative(box: Box, frame: Frame) -> tuple[float, float, float, float]:
    return box.left / frame.width, box.top / frame.height, box.right / frame.width, box.bottom / frame.height
