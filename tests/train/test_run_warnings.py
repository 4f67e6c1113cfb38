"""A run that can't learn says so, with the setting to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.train import trainer
from captioner.train.config import TrainingSettings
from captioner.train.distributed import World
from captioner.train.run_warnings import after_training, before_training, of_metrics, of_scores
from tests.train import tiny_run


def settings(**values: Any) -> TrainingSettings:
    return TrainingSettings(**{"epochs": 10, **values})


def test_a_run_shorter_than_its_warm_up() -> None:
    (warning,) = before_training(settings(schedule={"warmup": 500}), steps=7)
    assert "70 steps and a warm-up of 500" in warning and "training.schedule.warmup=0.05" in warning
    assert list(before_training(settings(), steps=7)) == []
    assert list(before_training(settings(schedule={"warmup": 69}), steps=7)) == []


def test_a_learning_rate_that_never_rose() -> None:
    rows: list[dict[str, Any]] = [{"rate": 1e-5, "nll": 5.0}, {"rate": 4e-5, "nll": 4.9}, {"validation": {}}]
    (warning,) = after_training(settings(optimizer={"learning_rate": 4e-4}), rows)
    assert "never rose above 4.0e-05, 10% of training.optimizer.learning_rate=0.0004" in warning
    assert list(after_training(settings(optimizer={"learning_rate": 5e-5}), rows)) == []


def test_a_score_that_never_changes() -> None:
    assert list(of_scores(settings(), [0.0, 0.0])) == []
    (warning,) = of_scores(settings(), [3.0, 0.0, 0.001, 0.0])
    assert "CIDEr has been 0.0 in 3 validations" in warning and "training.optimizer.learning_rate" in warning
    assert warning.endswith("or start from a model (training.start_from=default)")
    (warning,) = of_scores(settings(start_from="default"), [0.0, 0.0, 0.0])
    assert warning.endswith("raise training.optimizer.learning_rate or training.epochs")
    assert list(of_scores(settings(), [0.0, 0.0, 0.3])) == []
    assert list(of_scores(settings(epochs=40), [0.0] * 12)) == []
    assert len(list(of_scores(settings(epochs=40), [0.0] * 13))) == 1


@pytest.mark.parametrize("patience", [1, 2, 5, 30])
def test_a_score_that_never_changes_is_named_before_early_stopping_ends_the_run(patience: int) -> None:
    stops = settings(epochs=40, validation={"patience": patience})
    scores = [0.0] * (patience + 1)  # the first one is the best one
    found = [list(of_scores(stops, scores[:count])) for count in range(1, len(scores) + 1)]
    assert any(found)
    assert found[0] == []


@pytest.mark.parametrize(("patience", "advised"), [(5, True), (30, False), (None, False)])
def test_patience_is_advised_where_it_would_end_the_run(patience: int | None, advised: bool) -> None:
    (warning,) = of_scores(settings(epochs=40, validation={"patience": patience}), [0.0] * 13)
    assert ("training.validation.patience" in warning) == advised


def test_a_loss_that_is_mostly_a_regulariser() -> None:
    row = {"loss": 100.0, "coverage": 57.0, "nll": 3.0}
    (warning,) = of_metrics(settings(doubly_stochastic=1.0), row)
    assert warning == "57% of the loss is the term of training.doubly_stochastic=1, not the captions; lower it"
    assert list(of_metrics(settings(), row)) == []
    boxes = {"loss": 10.0, "coverage": 0.0, "cell_categories": 30.0}
    (warning,) = of_metrics(settings(cell_categories={"weight": 1.0}), boxes)
    assert "75% of the loss is the term of training.cell_categories.weight=1" in warning
    self_critical = {"reward": 1.2, "cell_categories": 3.0}
    assert list(of_metrics(settings(cell_categories={"weight": 1.0}), self_critical)) == []


def test_a_loss_that_is_mostly_grounding() -> None:
    row = {"epoch": 5.0, "loss": 30.0, "nll": 3.0, "grounding": 1.5}
    (warning,) = of_metrics(settings(grounding={"weight": 40.0}), row)
    assert warning == (
        "67% of the loss of a caption with one word that names boxes is the term of training.grounding.weight=40, not "
        "the words; lower it"
    )
    assert list(of_metrics(settings(grounding={"weight": 1.0}), row)) == []
    assert list(of_metrics(settings(), row)) == []
    rising = settings(grounding={"weight": 0.3, "final_weight": 80.0})
    (warning,) = of_metrics(rising, row)
    assert "67%" in warning and "training.grounding.final_weight=80" in warning
    assert list(of_metrics(rising, {**row, "epoch": 0.1})) == []
    falling = settings(grounding={"weight": 80.0, "final_weight": 0.3, "final_epoch": 5})
    assert list(of_metrics(falling, row)) == []
    assert "training.grounding.weight=80" in next(iter(of_metrics(falling, {**row, "epoch": 0.1})))


def test_a_loss_that_is_mostly_the_entropy_bonus() -> None:
    # The bonus makes the loss smaller, here even negative: only the likelihood tells how large it is.
    row = {"epoch": 5.0, "loss": -10.0, "nll": 3.0, "entropy": 5.0, "baseline": -3.0}
    (warning,) = of_metrics(settings(hard={"entropy": 1.5}), row)  # half of the captions are sampled
    assert warning == "56% of the loss is the term of training.hard.entropy=1.5, not the captions; lower it"
    assert list(of_metrics(settings(hard={"entropy": 1.0}), row)) == []
    assert len(list(of_metrics(settings(hard={"entropy": 1.0, "expected": 0.0}), row))) == 1
    assert list(of_metrics(settings(), row)) == []
    (warning,) = of_metrics(settings(hard={"entropy": 0.0, "final_entropy": 4.0}), row)
    assert "training.hard.final_entropy=4" in warning
    soft = {name: value for name, value in row.items() if name != "baseline"}
    assert list(of_metrics(settings(hard={"entropy": 10.0}), soft)) == []  # soft attention has no bonus
    assert len(list(of_metrics(settings(hard={"entropy": 10.0}), {**soft, "advantage": 1.0}))) == 1


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_run_with_a_large_entropy_bonus_says_so_only_with_hard_attention(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    (tmp_path / "run").mkdir()
    config = tiny_run.config(
        tiny_run.write_data(tmp_path / "data"),
        training__hard={"entropy": 20.0},
        model__attention={"mode": mode, "size": 8},
    )
    trainer.train(config, tmp_path / "run", World(0, 1, torch.device("cpu")))
    assert ("training.hard.entropy=20" in capsys.readouterr().err) == (mode == "hard")


def test_a_run_prints_each_warning_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tiny_run.write_data(tmp_path / "data")
    run = tmp_path / "run"
    run.mkdir()
    config = tiny_run.config(
        data,
        training__epochs=4,
        training__schedule={"warmup": 10_000},
        training__doubly_stochastic=100.0,
        training__optimizer={"learning_rate": 1e-9},
    )
    trainer.train(config, run, World(0, 1, torch.device("cpu")))
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 4
    for setting in ("warm-up of 10,000", "never rose above", "in 3 validations", "training.doubly_stochastic=100"):
        assert sum(setting in line for line in warnings) == 1


def test_an_ordinary_run_prints_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tiny_run.write_data(tmp_path / "data")
    (tmp_path / "run").mkdir()
    trainer.train(tiny_run.config(data), tmp_path / "run", World(0, 1, torch.device("cpu")))
    assert "warning" not in capsys.readouterr().err
