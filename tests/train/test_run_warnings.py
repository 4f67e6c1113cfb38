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
