"""Likelihood of the references under the model, teacher-forced: each word after the true words before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.inference.backend import Annotations, Backend
from captioner.inference.search import SearchOptions, force
from captioner.metrics.means import Mean, mean


@dataclass(frozen=True)
class Likelihood:
    """How well the model predicts the references."""

    captions: int
    words: int  # with one end token per caption
    unknown: float  # share of words outside the vocabulary; they count with the probability of <unk>
    perplexity: Mean  # exp of the mean negative log-probability per word


@dataclass(frozen=True)
class ImageSums:
    """Sums over the references of one image."""

    log_probability: float
    words: int
    unknown: int
    captions: int


def sum_references(
    backend: Backend, annotations: Annotations, references: list[list[list[int]]], options: SearchOptions
) -> list[ImageSums]:
    """The sums of each image of a batch. `references` are word numbers, per image and caption."""
    sums = []
    for forced in force(backend, annotations, references, options):
        sums.append(
            ImageSums(
                sum(float(caption.log_probabilities.sum(dtype=np.float64)) for caption in forced),
                sum(len(caption.log_probabilities) for caption in forced),
                sum(caption.words.count(backend.vocabulary.unk) for caption in forced),
                len(forced),
            )
        )
    return sums


def likelihood_of(images: Sequence[ImageSums]) -> Likelihood:
    """The likelihood over all images."""
    average = mean([-image.log_probability for image in images], [image.words for image in images])
    assert average is not None
    words = sum(image.words for image in images)
    return Likelihood(
        captions=sum(image.captions for image in images),
        words=words,
        unknown=sum(image.unknown for image in images) / words,
        perplexity=Mean(*(math.exp(x) for x in (average.value, average.low, average.high))),
    )
