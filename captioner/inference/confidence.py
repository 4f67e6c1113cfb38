"""Confidence of a caption: the expected share of its content words that are right, 0 to 1, calibrated.

Two small linear models, fitted by scripts/fit_confidence on photos that the captioner was not trained on, and stored
in the bundle as confidence.json:

1. For each content word, a logistic regression on what search knows (`word_features`): the word's probability, the
   gate, the entropy of its attention map, how often the word is right in general, and how well it fits to the whole
   picture. The fit is a prediction of the words that people use for a picture, from its pooled annotation.
2. For the picture, a logistic regression on the pooled annotation that tells photos from drawings, charts, text, noise,
   blanks and screenshots.

The confidence is the mean of the content words' probabilities, times the probability that the picture is a photo.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError

FORMAT = 1
FEATURES = (
    "log_odds",  # of the word's probability
    "probability",
    "log_probability",
    "gate",
    "entropy",  # of the attention map, as a share of that of a flat map
    "position",  # of the word in the caption, 0 to 1
    "length",  # words of the caption
    "reliability",  # log-odds that this word is right, whatever the picture
    "support",  # log-odds of the word, given the picture
    "relevance",  # support, less the log-odds of the word without a picture
)
LEAST, MOST = 1e-3, 1 - 1e-3  # limits of probabilities before they become log-odds

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WordStatistics:
    """What is known about one content word."""

    reliability: float  # log-odds that it is right
    frequency: float  # log-odds that people use it for a picture
    weights: Floats | None  # (k,): its probability rises by weights @ topics; None for a rare word


@dataclass(frozen=True, eq=False)
class ConfidenceModel:
    """The fitted numbers. `of` computes the confidence of a caption."""

    projection: Floats  # (D, k + 1): pooled annotation -> k topics, and the log-odds of a photo
    offset: Floats  # (k + 1,)
    function_words: frozenset[str]
    words: Mapping[str, WordStatistics]
    other: WordStatistics  # for words without an entry
    coefficients: Floats  # of FEATURES
    intercept: float
    about: Mapping[str, Any]  # what it was fitted on, and the figures measured on other pictures

    def topics(self, pooled: NDArray[Any]) -> Floats:
        """The topics of a picture from its pooled annotation (D,), and as the last number the log-odds of a photo."""
        return np.asarray(pooled, np.float64) @ self.projection + self.offset

    def of(self, caption: Caption, pooled: NDArray[Any]) -> Caption:
        """The caption with its confidence, and its alternatives with theirs."""
        topics = self.topics(pooled)
        photo = float(_sigmoid(topics[-1]))
        return self._of(caption, topics, photo)

    def _of(self, caption: Caption, topics: Floats, photo: float) -> Caption:
        table = self.features(caption.words, topics)
        right = _sigmoid(table @ self.coefficients + self.intercept)
        return replace(
            caption,
            confidence=photo * float(right.mean()) if len(right) else 0.0,
            alternatives=tuple(self._of(other, topics, photo) for other in caption.alternatives),
        )

    def features(self, words: Sequence[Word], topics: Floats) -> Floats:
        """One row of FEATURES per content word of a caption."""
        rows = [
            word_features(word, at, len(words), self.words.get(word.text, self.other), topics)
            for at, word in enumerate(words)
            if word.text not in self.function_words
        ]
        return np.array(rows, np.float64).reshape(len(rows), len(FEATURES))

    def to_json(self) -> dict[str, Any]:
        """As JSON; matrices are float16 in base64."""
        k = self.projection.shape[1] - 1
        rows: dict[bytes, int] = {}  # forms of a word, such as dog and dogs, share their weights
        entries = {}
        for word, statistics in self.words.items():
            weights = statistics.weights
            row = -1 if weights is None else rows.setdefault(np.asarray(weights, "<f2").tobytes(), len(rows))
            entries[word] = [round(statistics.reliability, 4), round(statistics.frequency, 4), row]
        return {
            "format": FORMAT,
            **self.about,
            "features": list(FEATURES),
            "coefficients": [float(f"{value:.6g}") for value in self.coefficients],
            "intercept": float(f"{self.intercept:.6g}"),
            "annotation_size": len(self.projection),
            "topics": k,
            "projection": _packed(self.projection),
            "offset": _packed(self.offset),
            "function_words": sorted(self.function_words),
            "words": entries,
            "other": [round(self.other.reliability, 4), round(self.other.frequency, 4)],
            "word_weights": base64.b64encode(b"".join(rows)).decode("ascii"),
        }

    @classmethod
    def from_json(cls, values: Any, where: str = "confidence.json") -> ConfidenceModel:
        """Read the file of a bundle. `where` names it in errors."""
        try:
            if values["format"] != FORMAT or values["features"] != list(FEATURES):
                raise CaptionerError(f"{where}: written by another version of captioner; upgrade captioner")
            size, k = int(values["annotation_size"]), int(values["topics"])
            weights = [*_unpacked(values["word_weights"], -1, k), None]  # row -1: a rare word without weights
            entries = {
                str(word): WordStatistics(float(reliability), float(frequency), weights[row])
                for word, (reliability, frequency, row) in values["words"].items()
            }
            reliability, frequency = map(float, values["other"])
            model = cls(
                projection=_unpacked(values["projection"], size, k + 1),
                offset=_unpacked(values["offset"], k + 1),
                function_words=frozenset(map(str, values["function_words"])),
                words=entries,
                other=WordStatistics(reliability, frequency, None),
                coefficients=np.array(values["coefficients"], np.float64).reshape(len(FEATURES)),
                intercept=float(values["intercept"]),
                about={key: values[key] for key in ("fitted_on", "measured_on", "figures")},
            )
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise CaptionerError(f"{where}: not the confidence of a model ({error!r})") from None
        if not all(np.isfinite(part).all() for part in (model.projection, model.offset, model.coefficients)):
            raise CaptionerError(f"{where}: has a number that is not finite")
        return model


def load_confidence(path: Path, annotation_size: int) -> ConfidenceModel:
    """Read confidence.json of a bundle whose annotations have this size."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CaptionerError(f"{path}: not JSON ({error})") from None
    model = ConfidenceModel.from_json(values, str(path))
    if len(model.projection) != annotation_size:
        raise CaptionerError(
            f"{path}: is for annotations of {len(model.projection)} numbers, and the model's have {annotation_size}"
        )
    return model


def word_features(word: Word, at: int, length: int, statistics: WordStatistics, topics: Floats) -> list[float]:
    """FEATURES of the word at a position of a caption of this length."""
    probability = float(np.clip(word.probability, LEAST, MOST))
    support = statistics.frequency
    if statistics.weights is not None:
        expected = 1 / (1 + np.exp(-statistics.frequency)) + float(statistics.weights @ topics[:-1])
        support = log_odds(expected)
    return [
        log_odds(probability),
        probability,
        float(np.log(probability)),
        word.gate,
        word.entropy / float(np.log(max(2, word.alpha.size))),
        at / length,
        float(length),
        statistics.reliability,
        support,
        support - statistics.frequency,
    ]


def log_odds(probability: float) -> float:
    """log(p / (1 - p)), with p kept away from 0 and 1."""
    p = min(max(float(probability), LEAST), MOST)
    return float(np.log(p / (1 - p)))


def _sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(values, -50, 50)))


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f2").tobytes()).decode("ascii")


def _unpacked(text: str, *shape: int) -> Floats:
    return np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float64).reshape(shape)
