"""The bootstrap draws images with replacement, evenly, and the interval has the width that theory gives."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.metrics import bootstrap
from captioner.metrics.bootstrap import difference, interval, resample


def test_the_spread_is_that_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(50, 10, size=400)
    means = resample(values[:, None], samples=4000)[:, 0]
    assert means.mean() == pytest.approx(values.mean(), abs=0.05)
    assert means.std() == pytest.approx(values.std() / np.sqrt(400), rel=0.05)
    found = interval(means)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * values.std() / 20, rel=0.08)


def test_every_set_has_as_many_images_as_there_are() -> None:
    assert resample(np.ones((7, 2)), samples=50) == pytest.approx(np.ones((50, 2)))


def test_blocks_draw_what_one_block_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).random((10, 3))
    whole = resample(values, samples=33, seed=2)
    monkeypatch.setattr(bootstrap, "_BLOCK", 40)
    assert resample(values, samples=33, seed=2) == pytest.approx(whole)


def test_a_difference_without_doubt_has_p_zero_and_none_at_all_has_p_one() -> None:
    draws = np.random.default_rng(3).normal(size=500)
    assert difference(draws + 9, draws, 9.0).p == 0
    assert difference(draws, draws, 0.0).p == 1


def test_a_difference_by_chance_is_not_taken_for_one() -> None:
    generator = np.random.default_rng(4)
    first, second = (resample(generator.normal(size=(200, 1)), samples=1000)[:, 0] for _ in range(2))
    assert difference(first, second, float(first.mean() - second.mean())).p > 0.05
