"""METEOR 1.5 for English without Java, with the published parameters and weights.

Denkowski and Lavie, "Meteor Universal" (2014). A caption is aligned with each of its references. The score is a
weighted mean of precision and recall of the matched words, in which function words count less than content words. A
penalty lowers it if the matches are scattered. The scores equal those of meteor-1.5.jar as pycocoevalcap runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from captioner.metrics.meteor.align import WEIGHTS, align
from captioner.metrics.meteor.match import Matcher, Sentence
from captioner.metrics.meteor.resources import MeteorUnavailableError, load_resources
from captioner.metrics.meteor.words import meteor_words

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MeteorUnavailableError", "best_statistics", "meteor_scores", "meteor_statistics"]

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.20, 0.60, 0.75

# The score of a caption is computed from 11 numbers, the score of a corpus from their sums: content words and function
# words of the caption, the same of the reference, weighted matched content and function words of the caption, the same
# of the reference, matched words of the caption, matched words of the reference, chunks.
_COLUMNS = 11


def meteor_statistics(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
    """One row of sufficient statistics per caption, from the reference that scores best.

    Captions and references are tokens joined by spaces, with the same keys.
    """
    resources = load_resources()
    sentences = {key: Sentence(meteor_words(text)) for key, text in captions.items()}
    reference_sentences = {key: [Sentence(meteor_words(text)) for text in references[key]] for key in captions}
    corpus = [*sentences.values(), *(s for group in reference_sentences.values() for s in group)]
    matcher = Matcher.of(resources, corpus)
    rows = np.zeros((len(sentences), _COLUMNS))
    for row, (key, sentence) in zip(rows, sentences.items(), strict=True):
        row[:] = best_statistics(matcher, sentence, reference_sentences.pop(key))
    return rows


def best_statistics(matcher: Matcher, caption: Sentence, references: Sequence[Sentence]) -> NDArray[np.float64]:
    """The statistics of one caption, from the reference that scores best."""
    candidates = np.array([_statistics(matcher, caption, reference) for reference in references])
    best: NDArray[np.float64] = candidates[np.argmax(meteor_scores(candidates))]
    return best


def meteor_scores(statistics: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score of each row of statistics, 0 to 1. The sum of all rows gives the score of the corpus."""
    s = np.asarray(statistics, np.float64).T
    content, function, ref_content, ref_function, matched_c, matched_f, ref_matched_c, ref_matched_f = s[:8]
    matched, ref_matched, chunks = s[8:]
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = (DELTA * matched_c + (1 - DELTA) * matched_f) / (DELTA * content + (1 - DELTA) * function)
        recall = (DELTA * ref_matched_c + (1 - DELTA) * ref_matched_f) / (
            DELTA * ref_content + (1 - DELTA) * ref_function
        )
        mean = 1 / ((1 - ALPHA) / precision + ALPHA / recall)
        penalty = GAMMA * (chunks / ((matched + ref_matched) / 2)) ** BETA
        score = mean * (1 - penalty)
    return np.where(np.isfinite(score), score, 0.0)


def _statistics(matcher: Matcher, caption: Sentence, reference: Sentence) -> list[float]:
    words, ref_words = caption.words, reference.words
    matches, chunks = align(matcher.candidates(caption, reference), len(words))
    is_function = matcher.resources.function_words.__contains__
    weighted = [0.0, 0.0, 0.0, 0.0]
    for match in matches:
        weight = WEIGHTS[match.matcher]
        for word in words[match.start : match.start + match.length]:
            weighted[is_function(word)] += weight
        for word in ref_words[match.ref : match.ref + match.ref_length]:
            weighted[2 + is_function(word)] += weight
    function, ref_function = sum(map(is_function, words)), sum(map(is_function, ref_words))
    matched, ref_matched = sum(m.length for m in matches), sum(m.ref_length for m in matches)
    if chunks == 1 and matched == len(words) and ref_matched == len(ref_words):
        chunks = 0  # equal sentences get no penalty, neither alone nor in the sum of the corpus
    return [
        *(len(words) - function, function, len(ref_words) - ref_function, ref_function),
        *weighted,
        *(matched, ref_matched, chunks),
    ]
