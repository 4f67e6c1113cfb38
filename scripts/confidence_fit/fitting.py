"""Fitting a ConfidenceModel, and measuring it on pictures that it was not fitted on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.inference.confidence import ConfidenceModel, Floats, WordStatistics, log_odds
from captioner.metrics.content_words import function_words
from captioner.metrics.meteor.stem import stem
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import SPECIAL, Vocabulary
from confidence_fit.observations import Observation
from confidence_fit.regression import (
    auroc,
    bins,
    calibration_error,
    logistic_regression,
    reduced_rank_regression,
    spearman,
)

TOPICS = 40
LEAST_PICTURES = 20  # training pictures that must have a word in their captions, for the word to get weights
TOPIC_RIDGE, PHOTO_RIDGE, WORD_RIDGE = 1e3, 1e2, 1.0
PRIOR = 5.0  # a word's reliability is averaged with this many words of average reliability


def fit(
    vocabulary: Vocabulary,
    training: tuple[NDArray[Any], Sequence[Sequence[str]]],  # pooled annotations (n, D), and the raw captions
    photos: Sequence[Observation],
    non_photos: NDArray[Any],  # pooled annotations
) -> ConfidenceModel:
    """The model, fitted on captions of photos with references, training photos, and pictures that are no photos."""
    pooled, captions = training
    model = _with_topics(vocabulary, pooled.astype(np.float64), captions)
    model = _with_photo(model, pooled.astype(np.float64), non_photos.astype(np.float64))
    return _with_words(model, photos)


def _with_topics(vocabulary: Vocabulary, pooled: Floats, captions: Sequence[Sequence[str]]) -> ConfidenceModel:
    """The projection to topics, and for each word its frequency and its weights."""
    said = [{stem(token) for caption in of_picture for token in tokenize(caption)} for of_picture in captions]
    counts = Counter(word_stem for stems in said for word_stem in stems)
    skipped = frozenset(function_words(vocabulary.words))
    content = [word for word in vocabulary.words if word not in skipped and word not in SPECIAL]
    stems = sorted({stem(word) for word in content if counts[stem(word)] >= LEAST_PICTURES})
    targets = np.array([[word_stem in of_picture for word_stem in stems] for of_picture in said], np.float64)
    targets = targets.reshape(len(said), len(stems))
    mean, deviation = pooled.mean(0), pooled.std(0) + 1e-3
    directions, heads = reduced_rank_regression((pooled - mean) / deviation, targets, TOPICS, ridge=TOPIC_RIDGE)
    scale = ((pooled - mean) / deviation @ directions).std(0)  # topics of size 1, which float16 stores well
    used = scale > 1e-6 * scale.max(initial=0)  # small models have fewer topics
    directions, heads, scale = directions[:, used], heads[used], scale[used]
    projection = directions / scale / deviation[:, None]
    frequencies = dict(zip(stems, map(log_odds, targets.mean(0)), strict=True))
    weights = dict(zip(stems, (heads * scale[:, None]).T, strict=True))
    return ConfidenceModel(
        projection=np.concatenate([projection, np.zeros((len(mean), 1))], axis=1),
        offset=np.append(-mean @ projection, 0.0),
        function_words=skipped | set(SPECIAL),
        words={
            word: WordStatistics(0.0, frequencies[stem(word)], weights[stem(word)])
            for word in content
            if stem(word) in weights
        },
        other=WordStatistics(0.0, log_odds(LEAST_PICTURES / max(1, len(captions))), None),
        coefficients=np.zeros(0),
        intercept=0.0,
        about={},
    )


def _with_photo(model: ConfidenceModel, photos: Floats, non_photos: Floats) -> ConfidenceModel:
    """The column of the projection that tells photos from other pictures. Both sides weigh the same."""
    table = np.concatenate([photos, non_photos])
    is_photo = np.append(np.ones(len(photos)), np.zeros(len(non_photos)))
    weights = len(table) / 2 / np.where(is_photo == 1, len(photos), len(non_photos))
    *column, constant = logistic_regression(table, is_photo, ridge=PHOTO_RIDGE, weights=weights)
    projection, offset = model.projection.copy(), model.offset.copy()
    projection[:, -1], offset[-1] = column, constant
    return replace(model, projection=projection, offset=offset)


def _with_words(model: ConfidenceModel, photos: Sequence[Observation]) -> ConfidenceModel:
    """How reliable each word is, and the regression that says whether a word is right."""
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for observation in photos:
        for word, right in _content(observation):
            outcomes[word].append(right)
    mean = float(np.mean([right for values in outcomes.values() for right in values]))
    tables, targets = [], []
    for observation in photos:
        content = list(_content(observation))
        # A word's own outcome must not be part of the reliability that predicts it.
        others = {word: _reliability(_without(outcomes[word], right), mean) for word, right in content}
        words = {word: replace(model.words.get(word, model.other), reliability=others[word]) for word in others}
        tables.append(replace(model, words=words).features(observation.caption.words, model.topics(observation.pooled)))
        targets += [float(right) for _, right in content]
    regression = logistic_regression(np.concatenate(tables), np.array(targets), ridge=WORD_RIDGE)
    average = replace(model.other, reliability=log_odds(mean))
    reliabilities = {word: _reliability(values, mean) for word, values in outcomes.items()}
    return replace(
        model,
        words={
            word: replace(model.words.get(word, average), reliability=reliabilities.get(word, average.reliability))
            for word in sorted({*model.words, *outcomes})
        },
        other=average,
        coefficients=regression[:-1],
        intercept=float(regression[-1]),
    )


def measure(model: ConfidenceModel, photos: Sequence[Observation], non_photos: Sequence[Observation]) -> dict[str, Any]:
    """The figures of a model, on pictures that it was not fitted on."""
    confidence = confidences(model, photos)
    precision = np.array([observation.precision for observation in photos])
    figures: dict[str, Any] = {
        "calibration_error": round(calibration_error(confidence, precision), 4),
        "spearman": round(spearman(confidence, precision), 4),
        "spearman_of_score": round(spearman(np.array([one.caption.score for one in photos]), precision), 4),
        "auroc_non_photos": round(auroc(confidence, confidences(model, non_photos)), 4),
        "reliability": [[round(float(c.mean()), 4), round(float(p.mean()), 4)] for c, p in bins(confidence, precision)],
    }
    for kind in sorted({observation.kind for observation in non_photos}):
        of_kind = [observation for observation in non_photos if observation.kind == kind]
        figures[f"auroc_{kind}"] = round(auroc(confidence, confidences(model, of_kind)), 4)
    return figures


def auroc_of_unseen_kinds(
    model: ConfidenceModel, training: NDArray[Any], photos: Sequence[Observation], fitted: Sequence[Observation]
) -> dict[str, float]:
    """For each kind of non-photo, the AUROC of a model that was fitted without this kind."""
    areas = {}
    for kind in sorted({observation.kind for observation in fitted}):
        others = np.array([observation.pooled for observation in fitted if observation.kind != kind], np.float64)
        without = _with_photo(model, training.astype(np.float64), others)
        of_kind = [observation for observation in fitted if observation.kind == kind]
        areas[kind] = round(auroc(confidences(without, photos), confidences(without, of_kind)), 4)
    return areas


def confidences(model: ConfidenceModel, observations: Iterable[Observation]) -> Floats:
    return np.array([model.of(one.caption, one.pooled).confidence for one in observations], np.float64)


def _content(observation: Observation) -> list[tuple[str, bool]]:
    return [
        (word.text, right)
        for word, right in zip(observation.caption.words, observation.right, strict=True)
        if right is not None
    ]


def _without(values: list[bool], one: bool) -> list[bool]:
    rest = list(values)
    rest.remove(one)
    return rest


def _reliability(values: Sequence[bool], mean: float) -> float:
    return log_odds((sum(values) + PRIOR * mean) / (len(values) + PRIOR))
