"""A run that was killed at any point and resumed ends with the same bits as one that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from captioner.train import checkpoint
from captioner.train.run_folder import RunFolder
from tests.train import child_process, tiny_run
from tests.train.child_process import KillAt

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kills processes by POSIX signals")

# In order: before the first regular checkpoint, with a checkpoint written but not renamed, after its rename, between
# checkpoints, after the metrics of a validation but before its checkpoint, and after that checkpoint.
DEATHS = [
    KillAt("captioner.train.epoch_timer:EpochTimer.show", 2),
    KillAt("captioner.files.atomic:os.fsync", 2, after=False),
    KillAt("captioner.train.checkpoint:write", 1),
    KillAt("captioner.train.epoch_timer:EpochTimer.show", 3),
    KillAt("captioner.train.logger:Logger.metrics", 2),
    KillAt("captioner.train.trainer:Trainer._validate", 1),
    KillAt("captioner.train.trainer:Trainer._save", 1),
]
KINDS: dict[str, dict[str, Any]] = {
    "soft": {"training__accumulate": 2, "training__schedule": {"name": "plateau", "warmup": 2, "patience": 0}},
    "hard": {"model__attention": {"mode": "hard", "size": 8}},
    "hard, several samples": {
        "model__attention": {"mode": "hard", "size": 8, "normalizer": "entmax15"},
        "training__hard": {"samples": 3, "expected": 0.0, "entropy": 0.1, "final_entropy": 0.0, "temperature": 2.0},
        "training__word_dropout": 0.2,
    },
    "tail and average": {
        "encoder__tail": "stage3",
        "training__tune": {"start_epoch": 1},
        "training__ema": 0.9,
        "features__flip": True,
        "training__crop": 0.5,
    },
    "pyramid": {
        "encoder__annotations": ["stage4"],
        "encoder__tail": "stage3",
        "encoder__pyramid": {"size": 12, "blocks": 1, "dropout": 0.3},
        "model__annotation_size": None,
        "model__attention": {"size": 8, "normalizer": "entmax15", "last_word": True},
        "training__tune": {"start_epoch": 1},
        "training__ema": 0.9,
        "features__flip": True,
    },
    "encoder that ends": {
        "encoder__annotations": ["stage4"],
        "encoder__tail": "stage3",
        "encoder__pyramid": {"size": 12, "blocks": 1},
        "model__annotation_size": None,
        "training__tune": {"end_epoch": 1},
        "training__ema": 0.9,
    },
    "self-critical": {"training__scst": {"start_epoch": 1, "samples": 2, "learning_rate": 0.001}},
    "boxes": {
        "data__boxes": ["instances_train.json"],
        "encoder__tail": "stage3",
        "features__flip": True,
        "training__crop": 0.5,
        "training__accumulate": 2,
        "training__precision": "bfloat16",
        "training__grounding": {"weight": 0.5, "final_weight": 0.1},
        "training__cell_categories": {"weight": 0.5},
        "training__tune": {"start_epoch": 1},
    },
    "pixels": {"encoder__tail": "stem", "training__scheduled_sampling": {"increase": 0.2}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_and_resumed_run_ends_with_the_same_bits(kind: str, shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, **KINDS[kind])
    whole, killed, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    assert child_process.run(child_process.train, config, whole, log=log) == 0, log.read_text()
    for number, kill in enumerate(DEATHS if kind == "soft" else DEATHS[::2]):
        code = child_process.run(child_process.train, config, killed, number > 0, kill=kill, log=log)
        assert code == -signal.SIGKILL, f"{kill}: {log.read_text()}"
    assert child_process.run(child_process.train, config, killed, True, log=log) == 0, log.read_text()
    same_bits(whole, killed)


def same_bits(one: Path, other: Path) -> None:
    for name in ("metrics.jsonl", "config.yaml", "vocabulary.json", "best/scores.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    for name in ("last.safetensors", "best/model.safetensors"):
        (ours, state), (theirs, expected) = checkpoint.read(one / name), checkpoint.read(other / name)
        assert state == expected
        assert list(ours) == list(theirs)
        for key, value in ours.items():
            assert torch.equal(value, theirs[key]), f"{name}: {key}"
    assert not list(other.glob(".*.part")), "a killed writer's leavings were not swept away"


def test_the_runs_of_the_resume_tests_do_learn(shapes: Path, tmp_path: Path) -> None:
    """Otherwise equal weights would prove nothing."""
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes)
    assert child_process.run(child_process.train, config, tmp_path / "run") == 0
    first = tmp_path / "first"
    assert (
        child_process.run(
            child_process.train, config, first, kill=KillAt("captioner.train.epoch_timer:EpochTimer.show", 1)
        )
        != 0
    )
    began, _ = checkpoint.read(first / "last.safetensors")
    ended, state = checkpoint.read(tmp_path / "run" / "last.safetensors")
    assert state["step"] == 8
    still = [k for k, v in began.items() if k.startswith("network.decoder.") and torch.equal(v, ended[k])]
    assert still == []


def test_a_run_killed_at_random_times_ends_with_the_same_bits(shapes: Path, tmp_path: Path) -> None:
    """The kill comes a random time after the first checkpoint: in a step, a write or a validation."""
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, training__epochs=12, training__checkpoint_every=1)
    whole, killed, log = tmp_path / "whole", tmp_path / "killed", tmp_path / "log"
    assert child_process.run(child_process.train, config, whole, log=log) == 0, log.read_text()
    last, chance = RunFolder(killed).checkpoint, random.Random(0)
    for number in range(4):
        before = last.stat().st_mtime_ns if number else None
        child = child_process.start(child_process.train, config, killed, number > 0, log=log)
        wait_for(lambda before=before: last.exists() and last.stat().st_mtime_ns != before, child)
        time.sleep(chance.random() * 0.1)
        child.kill()
        child.join(60)
        assert child.exitcode == -signal.SIGKILL, log.read_text()
    assert child_process.run(child_process.train, config, killed, True, log=log) == 0, log.read_text()
    same_bits(whole, killed)


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(
        tmp_path / "config.yaml", shapes, training__epochs=2000, training__validation__every=2000
    )
    run, log = tmp_path / "run", tmp_path / "log"
    log.touch()
    child = child_process.start(child_process.train, config, run, log=log)
    wait_for(lambda: "epoch 1:" in log.read_text(), child)
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    assert child.exitcode == 1
    state = checkpoint.read(RunFolder(run).checkpoint)[1]
    assert f"stopped and saved at step {state['step']}; to resume: captioner train --resume {run}" in log.read_text()
    assert state["step"] > 0


def test_a_second_ctrl_c_after_two_seconds_stops_at_once() -> None:
    from captioner.train.interrupt import interruptible

    before = signal.getsignal(signal.SIGINT)
    with interruptible() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # torchrun sends the signal a second time
        assert interrupt.requested
        interrupt.since -= 3
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_full_disk_keeps_the_last_good_checkpoint(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes)
    run, log = tmp_path / "run", tmp_path / "log"
    assert child_process.run(train_on_a_small_disk, config, run, log=log) == 1
    message = log.read_text()
    assert "File too large" in message
    assert f"the last good one is {RunFolder(run).checkpoint}" in message
    assert checkpoint.read(RunFolder(run).checkpoint)[1]["step"] == 4  # the end of the first epoch
    assert not list(run.glob(".*.part")), "half a checkpoint was left behind"
    whole = tmp_path / "whole"
    assert child_process.run(child_process.train, config, run, True, log=log) == 0, message
    assert child_process.run(child_process.train, config, whole, log=log) == 0
    same_bits(whole, run)


def train_on_a_small_disk(config: Path, run: Path) -> None:
    """From the sixth step on, no file may become as large as a checkpoint."""
    import resource

    from captioner.train.epoch_timer import EpochTimer

    real = EpochTimer.show
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes fail with an error, as on a full disk

    def show(self: EpochTimer, loss: float) -> None:
        real(self, loss)
        if self.state.step == 6:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    EpochTimer.show = show  # type: ignore[method-assign]
    child_process.train(config, run)


def test_a_run_that_stopped_early_continues_only_with_more_patience(shapes: Path, tmp_path: Path) -> None:
    from captioner.train.start import start

    rate = {"learning_rate": 1e-12}  # the captions never change, so the score never rises
    config = tiny_run.write_config(
        tmp_path / "config.yaml",
        shapes,
        training__epochs=9,
        training__optimizer=rate,
        training__validation__patience=2,
        training__validation__score="BLEU-4",
    )
    run = tmp_path / "run"
    start(config, folder=run)
    assert [row["epoch"] for row in tiny_run.read_metrics(run) if "validation" in row] == [1, 2, 3]
    start(None, resume=run)
    assert len([row for row in tiny_run.read_metrics(run) if "validation" in row]) == 3
    start(None, ["training.validation.patience=3"], resume=run)
    assert len([row for row in tiny_run.read_metrics(run) if "validation" in row]) == 4


def wait_for(condition: Any, child: Any, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert child.exitcode is None, "the child ended too soon"
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.02)


def test_the_config_of_a_resumed_run_has_the_changed_settings(shapes: Path, tmp_path: Path) -> None:
    from captioner.train.config_file import load
    from captioner.train.start import start

    run = tmp_path / "run"
    start(tiny_run.write_config(tmp_path / "config.yaml", shapes, training__epochs=1), folder=run)
    start(None, ["training.epochs=2", "training.scst.start_epoch=1", "training.ema=0.5"], resume=run)
    config = load(run / "config.yaml")
    assert config.training.epochs == 2
    assert config.training.scst is not None
    assert "reward" in tiny_run.read_metrics(run)[-2]
    assert json.loads((run / "timing.jsonl").read_text().splitlines()[-1])["epoch"] == 2
