"""BLEU-4 and METEOR of single captions, as rewards in training beside `CiderReward`: the same arguments, 0 to 1."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from captioner.metrics.cider import N, Ngram, ngram_counts
from captioner.metrics.meteor import best_statistics, meteor_scores
from captioner.metrics.meteor.match import Matcher, Sentence
from captioner.metrics.meteor.resources import load_resources
from captioner.metrics.meteor.words import meteor_words
from captioner.metrics.text_scores import NEVER
from captioner.text.vocabulary import UNK, Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray


class BleuReward:
    """Sentence BLEU-4, smoothed: one is added to the matches and to the number of n-grams of two and more words (Lin
    and Och 2004), so that a caption without a right run of four words is still told from one without any. The end
    counts as a word: a caption that breaks off ("… on a") would lose nothing else.
    """

    def __init__(self, references: Sequence[Sequence[Sequence[int]]], *, end: int) -> None:
        self.references, self.end = references, end

    def __call__(self, captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        """The score of each caption against the references of its image."""
        most: dict[int, Counter[Ngram]] = {}  # how often a reference has each n-gram at most
        for image in set(images):
            most[image] = Counter()
            for tokens in self.references[image]:
                most[image] |= ngram_counts((*tokens, self.end))
        return np.array([self._score(c, i, most[i]) for c, i in zip(captions, images, strict=True)], np.float64)

    def _score(self, caption: Sequence[int], image: int, most: Counter[Ngram]) -> float:
        if not caption:
            return 0.0
        matches = [0] * N
        for ngram, count in ngram_counts((*caption, self.end)).items():
            matches[len(ngram) - 1] += min(count, most[ngram])
        length = len(caption) + 1
        total = math.log(matches[0] / length)
        total += sum(math.log((matches[n] + 1) / (max(0, length - n) + 1)) for n in range(1, N))
        closest = min((abs(len(r) + 1 - length), len(r) + 1) for r in self.references[image])[1]
        return math.exp(total / N + min(0.0, 1 - closest / length))


class MeteorReward:
    """METEOR of captions in a vocabulary's words, without its table of paraphrases, which is most of its time."""

    def __init__(self, references: Sequence[Sequence[Sequence[int]]], vocabulary: Vocabulary) -> None:
        self.references = references
        self.words = [NEVER if word == UNK else word for word in vocabulary.words]
        self.matcher = Matcher.without_paraphrases(load_resources())

    def __call__(self, captions: Sequence[Sequence[int]], images: Sequence[int]) -> NDArray[np.float64]:
        """The score of each caption against the best of its image's references."""
        references = {image: [self._sentence(tokens) for tokens in self.references[image]] for image in set(images)}
        rows = [
            best_statistics(self.matcher, self._sentence(caption), references[image])
            for caption, image in zip(captions, images, strict=True)
        ]
        return meteor_scores(np.array(rows))

    def _sentence(self, tokens: Sequence[int]) -> Sentence:
        return Sentence(meteor_words(" ".join(self.words[token] for token in tokens)))
