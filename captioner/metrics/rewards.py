"""Rewards of single captions in training: BLEU-4 and METEOR, 0 to 1, and what the nouns are worth.

They are called like `CiderReward`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from captioner.metrics.meteor import best_statistics, meteor_scores
from captioner.metrics.meteor.match import Matcher, Sentence
from captioner.metrics.meteor.resources import load_resources
from captioner.metrics.meteor.words import meteor_words
from captioner.metrics.ngrams import ORDERS, Ngram, ngram_counts
from captioner.metrics.text_scores import UNMATCHABLE
from captioner.text.nouns import mentions, repeated_nouns
from captioner.text.vocabulary import UNK, Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BleuReward:
    """Sentence BLEU-4 with add-one smoothing for n-grams of two and more words (Lin and Och, 2004).

    Without smoothing, every caption that has no 4-gram of a reference would score 0. The end token counts as a word:
    otherwise a caption that breaks off ("… on a") would lose nothing. nltk's `sentence_bleu` with `method2` gives the
    same values for captions of three and more words, but counts the references again for every caption of an image.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]], *, end: int) -> None:
        self.references, self.end = references, end

    def __call__(self, captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        """The score of each caption against the references of its image."""
        limits = {image: self._highest_counts(image) for image in set(images)}
        scores = [self._score(caption, image, limits[image]) for caption, image in zip(captions, images, strict=True)]
        return np.array(scores, np.float64)

    def _highest_counts(self, image: int) -> dict[Ngram, int]:
        """For each n-gram, its count in the reference that has it most often."""
        highest: dict[Ngram, int] = {}
        for tokens in self.references[image]:
            for ngram, count in ngram_counts((*tokens, self.end)).items():
                if count > highest.get(ngram, 0):
                    highest[ngram] = count
        return highest

    def _score(self, caption: Sequence[int], image: int, limits: dict[Ngram, int]) -> float:
        if not caption:
            return 0.0
        matches = [0] * ORDERS
        for ngram, count in ngram_counts((*caption, self.end)).items():
            matches[len(ngram) - 1] += min(count, limits.get(ngram, 0))
        length = len(caption) + 1
        total = math.log(matches[0] / length)  # never log 0: the end token always matches
        total += sum(math.log((matches[n] + 1) / (max(0, length - n) + 1)) for n in range(1, ORDERS))
        closest = min((abs(len(r) + 1 - length), len(r) + 1) for r in self.references[image])[1]
        return math.exp(total / ORDERS + min(0.0, 1 - closest / length))


class MeteorReward:
    """METEOR of captions given as word numbers, without paraphrases: the paraphrase table takes most of its time."""

    def __init__(self, references: Sequence[Sequence[Sequence[int]]], vocabulary: Vocabulary) -> None:
        self.references = references
        self.words = [UNMATCHABLE if word == UNK else word for word in vocabulary.words]
        self.matcher = Matcher.without_paraphrases(load_resources())

    def __call__(self, captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        """The score of each caption against the best-matching reference of its image."""
        references = {image: [self._sentence(tokens) for tokens in self.references[image]] for image in set(images)}
        rows = [
            best_statistics(self.matcher, self._sentence(caption), references[image])
            for caption, image in zip(captions, images, strict=True)
        ]
        return meteor_scores(np.array(rows))

    def _sentence(self, tokens: Sequence[int]) -> Sentence:
        return Sentence(meteor_words(" ".join(self.words[token] for token in tokens)))


class ObjectReward:
    """`present` for each category that a caption names and that has a box, -`invented` for each one that is not there.

    A category is there if it has a box or a reference names it. Each category counts once. Images without boxes are
    not judged: their captions get 0.
    """

    def __init__(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        vocabulary: Vocabulary,
        boxed: Callable[[int], Collection[str]],  # the categories that have boxes in an image
        labels: Collection[str],  # all categories
        *,
        present: float = 1.0,
        invented: float = 1.0,
    ) -> None:
        self.references, self.words, self.boxed, self.labels = references, vocabulary.words, boxed, frozenset(labels)
        self.present, self.invented = present, invented

    def __call__(self, captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        """The score of each caption."""
        boxed = {image: set(self.boxed(image)) for image in set(images)}
        there = {
            image: categories.union(*(self._named(reference) for reference in self.references[image]))
            for image, categories in boxed.items()
            if categories
        }
        scores = []
        for caption, image in zip(captions, images, strict=True):
            named = self._named(caption) if boxed[image] else set()
            invented = named - there.get(image, set())
            scores.append(self.present * len(named & boxed[image]) - self.invented * len(invented))
        return np.array(scores, np.float64)

    def _named(self, caption: Sequence[int]) -> set[str]:
        return {mention.label for mention in mentions([self.words[number] for number in caption], self.labels)}


class RepetitionReward:
    """-1 for each noun that a caption has named before. The references do not matter."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.words = vocabulary.words

    def __call__(self, captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        """The score of each caption."""
        return -np.array([repeated_nouns([self.words[n] for n in caption]) for caption in captions], np.float64)
