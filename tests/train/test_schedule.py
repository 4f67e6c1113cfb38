"""The learning rate at several steps, compared with values calculated by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.train.config import ScheduleSettings, TrainingSettings, sized
from captioner.train.loss_settings import GroundingSettings
from captioner.train.schedule import annealed, factor, grounding_weight, self_critical_rate, warmup_steps
from tests.train import tiny_run


def test_warm_up_is_linear_up_to_the_full_rate() -> None:
    settings = ScheduleSettings(name="constant", warmup=4)
    assert [factor(settings, step, 100) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    assert factor(ScheduleSettings(name="constant", warmup=0), 0, 100) == 1


def test_cosine_falls_from_the_full_rate_to_the_floor() -> None:
    settings = ScheduleSettings(name="cosine", warmup=10, floor=0.2)
    assert factor(settings, 10, 110) == pytest.approx(1.0)
    assert factor(settings, 35, 110) == pytest.approx(0.2 + 0.8 * 0.85355339)  # (1 + cos 45°) / 2
    assert factor(settings, 60, 110) == pytest.approx(0.6)
    assert factor(settings, 110, 110) == pytest.approx(0.2)
    assert factor(settings, 500, 110) == pytest.approx(0.2)


def test_plateau_steps_down_whenever_the_score_stops_rising() -> None:
    settings = ScheduleSettings(name="plateau", warmup=0, factor=0.5)
    assert [factor(settings, 7, 100, plateaus) for plateaus in range(3)] == [1, 0.5, 0.25]


def test_the_self_critical_stage_has_its_own_rate_after_a_short_warm_up() -> None:
    settings = TrainingSettings.model_validate({"scst": {"start_epoch": 0, "learning_rate": 0.01}})
    assert self_critical_rate(settings, 0) == pytest.approx(0.0001)
    assert self_critical_rate(settings, 49) == pytest.approx(0.005)
    assert self_critical_rate(settings, 5000) == 0.01


def test_a_weight_is_constant_or_changes_linearly_until_the_end() -> None:
    assert [annealed(0.3, None, progress) for progress in (0.0, 0.5, 1.0)] == [0.3, 0.3, 0.3]
    assert [annealed(1.0, 0.2, progress) for progress in (0.0, 0.25, 1.0)] == pytest.approx([1.0, 0.8, 0.2])


def test_the_weight_of_grounding_may_reach_its_last_value_before_the_run_ends() -> None:
    whole = GroundingSettings(weight=0.3, final_weight=0.1)
    half = GroundingSettings(weight=0.3, final_weight=0.1, final_epoch=2)
    course = (0.0, 1.0, 2.0, 3.5, 4.0)
    assert [grounding_weight(whole, done, 4) for done in course] == pytest.approx([0.3, 0.25, 0.2, 0.125, 0.1])
    assert [grounding_weight(half, done, 4) for done in course] == pytest.approx([0.3, 0.2, 0.1, 0.1, 0.1])


def test_a_warm_up_below_1_is_a_share_of_the_run() -> None:
    share, steps = ScheduleSettings(name="cosine", warmup=0.1), ScheduleSettings(name="cosine", warmup=20)
    assert [factor(share, step, 200) for step in range(200)] == [factor(steps, step, 200) for step in range(200)]
    assert warmup_steps(ScheduleSettings(), 70) == 4  # a short run still learns


def test_the_defaults_follow_the_number_of_training_images() -> None:
    base = tiny_run.config(Path("data"), training__epochs=0, training__images=0)
    found = {n: (sized(base, n).training.images, sized(base, n).training.epochs) for n in (60, 216, 6000, 113_000)}
    assert found == {60: (8, 40), 216: (8, 38), 6000: (32, 10), 113_000: (32, 10)}
    assert sized(tiny_run.config(Path("data")), 10).training.epochs == 2
