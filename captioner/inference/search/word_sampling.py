"""Sampling: captions are sampled word by word from the model's distribution.

The samples of a picture depend on the seed and on the picture only, not on the rest of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.inference.backend import Annotations, Backend
from captioner.inference.search.constraints import Constraints
from captioner.inference.search.hypothesis import Hypothesis
from captioner.inference.search.trail import Leaf, Trail
from captioner.options import SearchOptions


def sample_captions(
    backend: Backend, annotations: Annotations, options: SearchOptions, constraints: Constraints
) -> list[list[Hypothesis]]:
    """n captions per image, best score first. A caption may occur twice."""
    images, n = len(annotations.values), options.n_best
    end = backend.vocabulary.end
    keys = annotations.sampling_keys
    generators = [np.random.default_rng((options.seed, int(key))) for key in keys]
    trail = Trail(images, options.length_power)
    leaves: list[list[Leaf]] = [[] for _ in range(images)]

    numbers = np.arange(images)  # the image of each row
    live = np.ones((images, n), np.bool_)
    sums = np.zeros((images, n))
    previous = np.zeros((images, n, 0), np.int64)
    state = backend.select_hypotheses(
        backend.begin(annotations, options.hard_attention, options.seed), np.zeros((images, n), np.int64)
    )
    words = np.full((images, n), backend.vocabulary.start, np.int64)
    same = np.arange(n)
    for time in range(options.max_length + 1):
        step = backend.step(state, words)
        scores = step.log_probabilities.copy()
        constraints.mask(scores, previous, np.zeros((*words.shape, 0), np.bool_))
        stuck = ~np.isfinite(scores).any(axis=2)  # no word is allowed next: the caption is cut here
        scores[stuck, end] = 0
        uniform = np.stack([generators[number].random(n) for number in numbers])
        words = _sample(scores, uniform, options)
        step_scores = np.take_along_axis(step.log_probabilities, words[:, :, None], axis=2)[:, :, 0]
        ended = live & (words == end)
        for row, slot in np.argwhere(ended | (live & (time == options.max_length))):
            complete = ended[row, slot] and not stuck[row, slot]
            end_score = float(step_scores[row, slot]) if complete else None
            image = int(numbers[row])
            leaves[image].append(trail.leaf(image, int(slot), time, float(sums[row, slot]), end_score))
        trail.add(numbers, step, np.broadcast_to(same, words.shape), words, step_scores)
        live &= ~ended
        sums = sums + step_scores
        previous = np.concatenate([previous, words[:, :, None]], axis=2)
        rows = np.flatnonzero(live.any(axis=1))
        if not len(rows):
            break
        state = step.state
        if len(rows) < len(numbers):
            state = backend.select_images(state, rows)
            numbers, live, sums = numbers[rows], live[rows], sums[rows]
            previous, words = previous[rows], words[rows]
    for of_image in leaves:
        of_image.sort(key=lambda leaf: -leaf.score)
    return [[trail.hypothesis(leaf) for leaf in of_image] for of_image in leaves]


def _sample(scores: NDArray[Any], uniform: NDArray[np.float64], options: SearchOptions) -> NDArray[np.int64]:
    """A word per hypothesis (B, K), from scores (B, K, V) and random numbers in 0..1."""
    below_best = scores.astype(np.float64) - scores.max(axis=2, keepdims=True)
    with np.errstate(over="ignore"):  # a temperature near 0 leaves the likeliest word only
        weights = np.exp(below_best / options.temperature)
    weights /= weights.sum(axis=2, keepdims=True)
    order = np.argsort(-weights, axis=2, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=2)
    if options.top_k:
        ranked[:, :, options.top_k :] = 0
    # A word stays if the likelier ones together have less than top_p. The first word always stays.
    sums = ranked.cumsum(axis=2)
    ranked[sums - ranked >= options.top_p * sums[:, :, -1:]] = 0
    sums = ranked.cumsum(axis=2)
    rank = (sums <= uniform[:, :, None] * sums[:, :, -1:]).sum(axis=2, keepdims=True)
    rank = np.minimum(rank, (ranked > 0).sum(axis=2, keepdims=True) - 1)
    return np.take_along_axis(order, rank, axis=2)[:, :, 0]
