"""The boxes of the training images as targets: where the noun of a word is, and which categories cover a cell.

A group is the boxes that one noun names: all boxes of one category in one image, or those of a phrase, if the captions
have phrases with their own boxes. Maps of groups are computed for each batch, because training mirrors and crops the
pictures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from captioner.data.box_coverage import relative_coverage
from captioner.data.caption_set import Box, CaptionSet, Phrase
from captioner.errors import CaptionerError
from captioner.images.decoding import inspect
from captioner.images.frame import Frame
from captioner.text.nouns import is_content_word, mentions
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import UNK, Vocabulary
from captioner.train.corpus import Corpus
from captioner.train.grids import Views


@dataclass(frozen=True)
class BatchBoxes:
    """All groups of the images of a batch, in their views."""

    groups: NDArray[np.int64]  # (G,): their numbers
    rows: NDArray[np.int64]  # (G,): the number of the group's image in the batch
    labels: NDArray[np.int16]  # (G,): their categories; -1 for the boxes of a phrase
    maps: NDArray[np.float32]  # (G, L): the share of each cell that a group covers

    def maps_of(self, groups: NDArray[np.int64]) -> NDArray[np.float32]:
        """The maps of groups of this batch, by their numbers."""
        order = np.argsort(self.groups)
        return self.maps[order[np.searchsorted(self.groups, groups, sorter=order)]]

    def cell_labels(self, images: int, labels: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """(B, L, categories): the share of each cell that each category covers; (B,): which images have boxes."""
        shares = np.zeros((images, labels, self.maps.shape[1]), np.float32)
        categories = self.labels >= 0
        shares[self.rows[categories], self.labels[categories]] = self.maps[categories]
        annotated = np.zeros(images, np.bool_)
        annotated[self.rows[categories]] = True
        return shares.transpose(0, 2, 1), annotated


@dataclass(frozen=True)
class BoxTargets:
    """Groups of boxes, and the group that each word of the corpus names."""

    labels: tuple[str, ...]  # names of the categories
    boxes: NDArray[np.float32]  # (N, 4): left, top, right, bottom, 0 to 1
    group_starts: NDArray[np.int64]  # (groups + 1,): index of each group's first box
    group_labels: NDArray[np.int16]  # (groups,): index into `labels`; -1 for the boxes of a phrase
    image_starts: NDArray[np.int64]  # (images + 1,): number of each image's first group
    word_groups: NDArray[np.int32]  # for every word of the corpus: the number of its group, or -1

    @classmethod
    def of(cls, data: CaptionSet, corpus: Corpus, vocabulary: Vocabulary) -> BoxTargets:
        """From a set with boxes and its captions as numbers. Images after those of the corpus have no captions."""
        labels = tuple(sorted({box.label for item in data for box in item.boxes}))
        if not labels:
            raise CaptionerError(f"{data.name}: no image has a box")
        numbers = {label: number for number, label in enumerate(labels)}
        categories = frozenset(labels)
        groups = _Groups([], [0], [])
        image_starts = [0]
        word_groups = np.full(len(corpus.words), -1, np.int32)
        for image, item in enumerate(data):
            if item.boxes:
                frame = inspect(item.path)
                named = {
                    label: groups.add([box for box in item.boxes if box.label == label], frame, numbers[label])
                    for label in dict.fromkeys(box.label for box in item.boxes)
                }
                phrases = _spans(item.phrases, frame, groups, vocabulary)
                for caption in corpus.numbers_of(image) if image < len(corpus) else ():
                    start, end = corpus.caption_starts[caption : caption + 2]
                    words = [vocabulary.words[number] for number in corpus.words[start:end]]
                    spans = next((spans for key, spans in phrases.items() if list(key[: len(words)]) == words), None)
                    word_groups[start:end] = (
                        groups_of_words(words, named, categories) if spans is None else _groups_of_phrases(words, spans)
                    )
            image_starts.append(len(groups.labels))
        return cls(
            labels,
            np.array(groups.boxes, np.float32),
            np.array(groups.starts, np.int64),
            np.array(groups.labels, np.int16),
            np.array(image_starts, np.int64),
            word_groups,
        )

    def groups_of_captions(self, corpus: Corpus, captions: NDArray[np.int64]) -> list[NDArray[np.int32]]:
        """The groups of the words of each caption, row by row, for captions (B, K) of the corpus."""
        starts = corpus.caption_starts
        return [self.word_groups[starts[number] : starts[number + 1]] for number in captions.flat]

    def groups_of_texts(self, images: Iterable[int], captions: Iterable[Sequence[str]]) -> list[NDArray[np.int32]]:
        """The groups of the words of captions that are not in the corpus, one image per caption."""
        labels = frozenset(self.labels)
        return [
            np.array(groups_of_words(words, self._groups(image), labels), np.int32)
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
        groups = range(self.image_starts[image], self.image_starts[image + 1])
        return {self.labels[self.group_labels[group]]: group for group in groups if self.group_labels[group] >= 0}


def groups_of_words(words: Sequence[str], groups: dict[str, int], labels: Collection[str]) -> list[int]:
    """The group that each word of a caption names, or -1. All words of a phrase name its group."""
    named = [-1] * len(words)
    for mention in mentions(words, labels) if groups else ():
        for position in range(mention.first, mention.last):
            named[position] = groups.get(mention.label, -1)
    return named


class _Groups(NamedTuple):
    """Groups while they are collected: the fields of BoxTargets as lists."""

    boxes: list[tuple[float, float, float, float]]
    starts: list[int]
    labels: list[int]

    def add(self, boxes: Sequence[Box], frame: Frame, label: int) -> int:
        """Add a group, and return its number."""
        self.boxes.extend(_relative(box, frame) for box in boxes)
        self.starts.append(len(self.boxes))
        self.labels.append(label)
        return len(self.labels) - 1


_Spans = list[tuple[int, int, int]]  # first word, one after the last word, group or -1


def _spans(
    phrases: Sequence[Phrase], frame: Frame, groups: _Groups, vocabulary: Vocabulary
) -> dict[tuple[str, ...], _Spans]:
    """The phrases of the captions of an image, by the words of the caption, in our words. Adds their groups."""
    known: dict[tuple[Box, ...], int] = {(): -1}
    captions = {}
    for tokens in {phrase.tokens for phrase in phrases}:
        words = [tokenize(token) for token in tokens]  # a token may be several words, or none
        ends = [0, *accumulate(map(len, words))]
        captions[tokens] = tuple(w if w in vocabulary else UNK for token in words for w in token), ends
    spans: dict[tuple[str, ...], _Spans] = {}
    for phrase in phrases:
        caption, ends = captions[phrase.tokens]
        if phrase.boxes not in known:
            known[phrase.boxes] = groups.add(phrase.boxes, frame, -1)
        span = ends[phrase.first], ends[phrase.last], known[phrase.boxes]
        spans.setdefault(caption, []).append(span)
    return spans


def _groups_of_phrases(words: Sequence[str], spans: _Spans) -> list[int]:
    """The group of each word of a caption with phrases: all words of a phrase but articles and the like have it."""
    named = [-1] * len(words)
    for first, last, group in spans:
        for position in range(first, min(last, len(words))):
            if is_content_word(words[position]):
                named[position] = group
    return named


def _relative(box: Box, frame: Frame) -> tuple[float, float, float, float]:
    return box.left / frame.width, box.top / frame.height, box.right / frame.width, box.bottom / frame.height
