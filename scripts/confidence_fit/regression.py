"""The regressions of scripts/fit_confidence, and the figures that judge a confidence.

In plain numpy: scikit-learn would be a large dependency for two functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS = 10


def logistic_regression(table: Floats, right: Floats, *, ridge: float, weights: Floats | None = None) -> Floats:
    """Coefficients, and the intercept as the last number, of a logistic regression with standardized features.

    Newton's method. `ridge` is the penalty of a squared standardized coefficient; the intercept has none.
    """
    mean, deviation = table.mean(0), table.std(0) + 1e-6
    design = np.concatenate([(table - mean) / deviation, np.ones((len(table), 1))], axis=1)
    penalty = np.append(np.full(table.shape[1], ridge), 0.0)
    weight = np.ones(len(table)) if weights is None else weights
    coefficients = np.zeros(design.shape[1])
    for _ in range(25):
        expected = 1 / (1 + np.exp(-np.clip(design @ coefficients, -30, 30)))
        gradient = design.T @ (weight * (right - expected)) - penalty * coefficients
        curvature = weight * np.maximum(expected * (1 - expected), 1e-6)
        step = np.linalg.solve((design * curvature[:, None]).T @ design + np.diag(penalty + 1e-9), gradient)
        coefficients += step
        if np.abs(step).max() < 1e-4:
            break
    scaled = coefficients[:-1] / deviation
    return np.append(scaled, coefficients[-1] - scaled @ mean)


def reduced_rank_regression(table: Floats, targets: Floats, rank: int, *, ridge: float) -> tuple[Floats, Floats]:
    """Two matrices (D, rank) and (rank, W): their product predicts centred 0/1 targets from centred, scaled features.

    Ridge regression, then the best approximation of its predictions with this rank. Rare targets count more than
    their errors alone, and less than frequent ones.
    """
    share = targets.mean(0)
    scale = np.maximum(share * (1 - share), 1e-6) ** -0.25
    gram = table.T @ table
    full = np.linalg.solve(gram + ridge * np.eye(len(gram)), table.T @ (targets - share)) * scale
    directions = np.linalg.eigh(full.T @ gram @ full)[1][:, ::-1][:, :rank]
    return full @ directions, directions.T / scale


def calibration_error(confidence: Floats, precision: Floats) -> float:
    """Expected calibration error over bins with equal numbers of captions."""
    return float(sum(len(c) * abs(c.mean() - p.mean()) for c, p in bins(confidence, precision)) / len(confidence))


def bins(confidence: Floats, precision: Floats) -> list[tuple[Floats, Floats]]:
    """Confidences and precisions in bins of equal size, lowest confidence first."""
    order = np.argsort(confidence, kind="stable")
    return [(confidence[part], precision[part]) for part in np.array_split(order, BINS) if len(part)]


def spearman(first: Floats, second: Floats) -> float:
    """Spearman's rank correlation; equal values share the mean of their ranks."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def auroc(high: Floats, low: Floats) -> float:
    """Probability that a value of `high` is above one of `low`; equal values count half."""
    ranks = _ranks(np.concatenate([high, low]))
    return float((ranks[: len(high)].sum() - len(high) * (len(high) + 1) / 2) / (len(high) * len(low)))


def _ranks(values: NDArray[Any]) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    mean_ranks: Floats = (ends - (counts - 1) / 2)[inverse]
    return mean_ranks
