"""Training of hard attention: several samples per caption, annealing, and what the exported model does by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from captioner.errors import UsageError
from captioner.export.run_bundle import export_run
from captioner.model import loss as objective
from captioner.model.decoder import Decoder
from captioner.train.batch_loss import BatchLoss
from captioner.train.self_critical import SelfCritical
from captioner.train.start import start
from tests.train import tiny_run

HARD = {"mode": "hard", "size": 8}


def train(data: Path, folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    config = tiny_run.write_config(folder / "config.yaml", data, **{"model__attention": HARD, **changes})
    return start(config, folder=folder / "run", device="cpu")


def test_samples_of_the_same_caption_have_small_advantages(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How hard a caption's words are cancels out, which a moving average over all captions can't know."""
    made: list[tuple[int, objective.Loss]] = []
    real = objective.loss

    def spy(forced: Any, captions: int, **how: Any) -> objective.Loss:
        made.append((captions, real(forced, captions, **how)))
        return made[-1][1]

    monkeypatch.setattr(objective, "loss", spy)
    steady: dict[str, Any] = {"model__dropout": 0.0, "training__optimizer": {"learning_rate": 0.03}}
    train(shapes, tmp_path / "one", **steady, training__hard={"expected": 0.0})
    alone = [float(loss.advantage) for _, loss in made[1:]]  # the first step has no baseline yet
    assert {captions for captions, _ in made} == {12}
    made.clear()
    train(shapes, tmp_path / "four", **steady, training__hard={"samples": 4, "expected": 0.0})
    assert {captions for captions, _ in made} == {48}
    assert all(float(loss.sampled[1]) == float(loss.words) for _, loss in made)
    together = [float(loss.advantage) for _, loss in made[1:]]
    assert sum(together) < 0.5 * sum(alone)
    assert all("advantage" in row for row in tiny_run.read_metrics(tmp_path / "four" / "run") if "nll" in row)


def test_temperature_and_entropy_bonus_are_annealed_and_validation_has_the_models_own(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temperatures, bonuses, other = [], [], []
    forward, real = BatchLoss._forward, objective.loss
    step = Decoder.step

    def spy(self: BatchLoss, *args: Any, **how: Any) -> Any:
        temperatures.append(self.network.decoder.temperature)
        return forward(self, *args, **how)

    def spy_loss(*args: Any, **how: Any) -> objective.Loss:
        bonuses.append(how["entropy"])
        return real(*args, **how)

    def spy_step(self: Decoder, *args: Any, **how: Any) -> Any:
        other.append(self.temperature)
        return step(self, *args, **how)

    monkeypatch.setattr(BatchLoss, "_forward", spy)
    monkeypatch.setattr(objective, "loss", spy_loss)
    monkeypatch.setattr(Decoder, "step", spy_step)
    train(
        shapes,
        tmp_path / "run",
        model__attention={**HARD, "temperature": 0.5},
        training__hard={"temperature": 1.5, "entropy": 0.4, "final_entropy": 0.0},
    )
    assert temperatures == pytest.approx([1.5 - i / 8 for i in range(8)])  # two epochs of four batches
    assert bonuses == pytest.approx([0.4 * (1 - i / 8) for i in range(8)])
    assert set(other) == {0.5}


@pytest.mark.parametrize(
    ("expected", "set_to", "stored"),
    [(0.0, None, "argmax"), (0.5, None, "expected"), (0.0, "sampled", "sampled"), (0.5, "argmax", "argmax")],
)
def test_a_model_that_was_trained_at_single_cells_attends_to_them_by_default(
    expected: float, set_to: str | None, stored: str, shapes: Path, tmp_path: Path
) -> None:
    config = tiny_run.config(
        shapes,
        model__attention=HARD,
        training__hard={"expected": expected},
        training__validation__search={"beam": 1, "hard_attention": set_to},
    )
    assert config.decoding.hard_attention == stored


def test_the_bundle_says_how_its_model_attends(shapes: Path, tmp_path: Path) -> None:
    run = train(shapes, tmp_path / "run", training__hard={"expected": 0.0}, training__epochs=1)
    bundle = export_run(run, tmp_path / "bundle", name="small", licence="MIT", training_data="shapes")
    assert bundle.manifest.decoding.hard_attention == "argmax"
    assert bundle.manifest.scored_on.endswith("hard attention argmax")


def test_soft_attention_has_no_such_default(shapes: Path) -> None:
    assert tiny_run.config(shapes, training__hard={"expected": 0.0}).decoding.hard_attention is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training__hard": {"samples": 2}}, "samples=2 clashes with expected=0.5.*set expected=0"),
        ({"model__attention": {"mode": "gumbel"}, "training__hard": {"samples": 2, "expected": 0}}, "mode=gumbel"),
        ({"model__attention": {"mode": "soft"}, "training__hard": {"temperature": 2}}, "nothing would read it"),
    ],
)
def test_settings_without_effect_are_refused(changes: dict[str, Any], message: str, shapes: Path) -> None:
    with pytest.raises(UsageError, match=message):
        tiny_run.config(shapes, **{"model__attention": HARD, **changes})


@pytest.mark.parametrize(("cells", "weight"), [(None, 0.4), (0.03, 0.03), (0.0, 0.0)])
def test_the_weight_of_cells_in_the_self_critical_stage(
    cells: float | None, weight: float, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[float] = []
    real = SelfCritical.loss

    def spy(self: SelfCritical, forced: Any, samples: Any, cells_weight: float) -> Any:
        weights.append(cells_weight)
        return real(self, forced, samples, cells_weight)

    monkeypatch.setattr(SelfCritical, "loss", spy)
    train(
        shapes,
        tmp_path / "run",
        training__hard={"reward": 0.4},
        training__scst={"start_epoch": 0, "samples": 2, "cells": cells},
        training__epochs=1,
    )
    assert set(weights) == {weight}
