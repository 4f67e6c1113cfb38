"""The bootstrap samples images with replacement, and intervals have the theoretical width."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.metrics import bootstrap
from captioner.metrics.bootstrap import difference, interval, resample


def test_the_standard_deviation_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(50, 10, size=400)
    means = resample(values[:, None], samples=4000)[:, 0]
    assert means.mean() == pytest.approx(values.mean(), abs=0.05)
    assert means.std() == pytest.approx(values.std() / np.sqrt(400), rel=0.05)
    bounds = interval(means)
    assert (bounds.high - bounds.low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.08)


def test_every_sample_has_as_many_images_as_the_set() -> None:
    assert resample(np.ones((7, 2)), samples=50) == pytest.approx(np.ones((50, 2)))


def test_sampling_in_blocks_gives_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((10, 3))
    whole = resample(values, samples=33, seed=2)
    monkeypatch.setattr(bootstrap, "_BLOCK", 40)
    assert resample(values, samples=33, seed=2) == pytest.approx(whole)


def test_p_is_0_for_a_constant_difference_and_1_for_none() -> None:
    values = np.random.default_rng(3).normal(size=500)
    assert difference(values + 9, values, 9.0).p == 0
    assert difference(values, values, 0.0).p == 1


def test_a_random_difference_is_not_significant() -> None:
    generator = np.random.default_rng(4)
    first, second = (resample(generator.normal(size=(200, 1)), samples=1000)[:, 0] for _ in range(2))
    assert difference(first, second, float(first.mean() - second.mean())).p > 0.05
