"""The trainer in one process: what a run writes, how it fails, and its gradients."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor

from captioner.errors import CaptionerError, UsageError
from captioner.train import checkpoint
from captioner.train import trainer as loops
from captioner.train.batch_loss import BatchLoss
from captioner.train.corpus import Batch
from captioner.train.run_folder import RunFolder
from captioner.train.setup import make_optimizer
from captioner.train.start import start
from captioner.train.trainer import Trainer
from tests.train import tiny_run
from tests.train.short_runs import ALONE, NO_DROPOUT, STEADY, new_folder, run, training


@pytest.fixture
def plain_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain gradient descent, so that equal gradients give equal weights."""

    def make(config: Any, setup: Any) -> torch.optim.Optimizer:
        groups = make_optimizer(config, setup).param_groups
        return torch.optim.SGD([{"params": g["params"], "lr_factor": g["lr_factor"]} for g in groups], lr=1.0)

    monkeypatch.setattr(loops, "make_optimizer", make)


def test_a_run_folder_has_all_documented_files(shapes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    _, rows = run(shapes, folder, training__validation={"samples": 1, "search": {"beam": 2, "max_length": 8}})
    assert [row["step"] for row in rows] == [4, 4, 8, 8]
    assert [row["epoch"] for row in rows] == [1, 1, 2, 2]
    assert set(rows[0]) == {"step", "epoch", "rate", "nll", "gradient", "loss", "coverage", "entropy"}
    assert {"BLEU-4", "CIDEr"} <= set(rows[1]["validation"])
    events = b"".join(file.read_bytes() for file in (folder / "board").iterdir())
    for tag in (b"train/loss", b"validation/CIDEr", b"attention/shapes_000017.png", b"captions"):
        assert tag in events
    best = json.loads((folder / "best" / "scores.json").read_text())
    assert best["scores"] == next(
        row["validation"] for row in rows if row["step"] == best["step"] and "validation" in row
    )
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    assert [row["steps"] for row in timing] == [4, 4]
    assert all(row["captions_per_second"] > 0 and 0 <= row["outside_share"] < 1 for row in timing)


def test_a_run_memorizes_a_tiny_data_set(tmp_path: Path) -> None:
    """Eight images with one caption each. The trained model captions copies of them word by word correctly."""
    data = tiny_run.write_data(tmp_path / "data", 10)
    content = json.loads((data / "captions_train.json").read_text())
    content["annotations"] = [a for a in content["annotations"] if a["id"] % 10 == 0]  # the first of each image
    (data / "captions_train.json").write_text(json.dumps(content))
    shutil.copytree(data / "images", data / "copies")
    (data / "captions_val.json").write_text(json.dumps(content))
    _, rows = run(
        data,
        tmp_path / "run",
        **NO_DROPOUT,
        data__val=[{"captions": "captions_val.json", "images": "copies"}],
        model__hidden_size=64,
        model__annotation_size=64,
        model__embedding_size=32,
        encoder__annotations=["stage5"],
        training__epochs=60,
        training__images=8,
        training__optimizer={"learning_rate": 0.01},
        training__validation={"every": 60, "samples": 0, "search": {"beam": 1, "max_length": 20}},
    )
    assert rows[-2]["nll"] < 0.05
    assert rows[-1]["validation"]["BLEU-4"] > 95


def test_an_existing_run_is_overwritten_only_with_overwrite(shapes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(shapes, folder, training__epochs=1)
    config = folder.with_suffix(".yaml")
    before = RunFolder(folder).checkpoint.read_bytes()
    with pytest.raises(UsageError, match=f"kept: continue it with --resume {folder}, replace it with --overwrite"):
        start(config, folder=folder)
    assert RunFolder(folder).checkpoint.read_bytes() == before
    start(config, folder=folder, overwrite=True)
    assert RunFolder(folder).checkpoint.is_file()


def test_overwrite_deletes_nothing_that_is_not_of_a_run(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "tiny.yaml", shapes, training__epochs=1)
    other = tmp_path / "documents"  # of another program, which also names its settings config.yaml
    other.mkdir()
    (other / "config.yaml").write_text("theme: dark\n")
    (other / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match=r"not a run folder \(it has neither run.lock nor last.safetensors\)"):
        start(config, folder=other, overwrite=True)
    folder = tmp_path / "run"
    start(config, folder=folder)
    (folder / "notes.txt").write_text("dear")
    with pytest.raises(UsageError, match=r"notes.txt is not a file of a training run; move it"):
        start(config, folder=folder, overwrite=True)
    assert sorted(path.name for path in other.iterdir()) == ["config.yaml", "letter.txt"]
    assert (folder / "notes.txt").read_text() == "dear"
    assert RunFolder(folder).checkpoint.is_file()


def test_a_second_process_cannot_train_into_the_same_folder(shapes: Path, tmp_path: Path) -> None:
    config, folder = tiny_run.write_config(tmp_path / "tiny.yaml", shapes, training__epochs=1), tmp_path / "run"
    start(config, folder=folder)
    with RunFolder(folder).locked():
        with pytest.raises(UsageError, match="another process is training into this folder"):
            start(None, ["training.epochs=2"], resume=folder)
        with pytest.raises(UsageError, match="another process is training into this folder"):
            start(config, folder=folder, overwrite=True)
    start(None, ["training.epochs=2"], resume=folder)


def test_resume_needs_a_checkpoint_and_refuses_another_config(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes)
    with pytest.raises(UsageError, match=r"has no checkpoint \(last.safetensors\)"):
        start(None, resume=tmp_path)
    RunFolder(tmp_path).checkpoint.touch()
    with pytest.raises(UsageError, match="leave out --config and --overwrite"):
        start(config, resume=tmp_path)
    with pytest.raises(UsageError, match="--config FILE to start a run, or --resume RUN"):
        start(None)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_stops_the_run(
    what: str, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BatchLoss._teacher_forced

    def poisoned(self: BatchLoss, *args: Any) -> Tensor:
        total = real(self, *args)
        if self.state.step == 5:
            zero = next(iter(self.setup.trainable.values())).sum() * 0
            total = total * math.nan if what == "loss" else total + torch.sqrt(zero)  # its derivative at 0 is infinite
        return total

    monkeypatch.setattr(BatchLoss, "_teacher_forced", poisoned)
    folder = tmp_path / "run"
    with pytest.raises(CaptionerError, match=rf"the {what} became nan at step 5 \(epoch 2, learning rate ") as raised:
        run(shapes, folder, training__checkpoint_every=1)
    assert f"the last good checkpoint is {RunFolder(folder).checkpoint}" in str(raised.value)
    tensors, state = checkpoint.read(RunFolder(folder).checkpoint)
    assert state["step"] == 5
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values() if tensor.is_floating_point())


def test_a_metrics_file_that_can_not_be_written_stops_the_run(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, row: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("captioner.train.logger._append", full)
    with pytest.raises(CaptionerError, match=r"step 4: .*No space left on device; the last good checkpoint is"):
        run(shapes, tmp_path / "run")
    assert checkpoint.read(RunFolder(tmp_path / "run").checkpoint)[1]["step"] == 3


def test_resident_memory_stays_flat_over_epochs(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = Trainer._validate

    def measured(self: Trainer) -> None:
        real(self)
        sizes.append(psutil.Process().memory_info().rss)

    monkeypatch.setattr(Trainer, "_validate", measured)
    run(shapes, tmp_path / "run", training__epochs=14)
    assert sizes[-1] - sizes[3] < 4e6, [round(size / 1e6, 1) for size in sizes]


@pytest.mark.usefixtures("plain_descent")
def test_two_accumulated_half_batches_equal_one_batch(shapes: Path, tmp_path: Path) -> None:
    how = {**NO_DROPOUT, **STEADY, "training__optimizer": {"learning_rate": 0.05, "clip": None}, "training__epochs": 1}
    whole, rows = run(shapes, tmp_path / "whole", **how, training__images=16)
    halves, other = run(shapes, tmp_path / "halves", **how, training__images=8, training__accumulate=2)
    first, _ = run(shapes, tmp_path / "first", **how, training__images=16, training__optimizer__learning_rate=1e-12)
    for name, value in whole.items():
        torch.testing.assert_close(halves[name], value, atol=2e-6, rtol=1e-5)
    moved = [name for name in whole if "decoder" in name and (whole[name] - first[name]).abs().max() > 1e-4]
    assert len(moved) > 10
    assert training(rows)[0]["loss"] == pytest.approx(training(other)[0]["loss"], rel=1e-5)


@pytest.mark.usefixtures("plain_descent")
def test_the_gradient_is_clipped_to_the_configured_norm(shapes: Path, tmp_path: Path) -> None:
    how = {**NO_DROPOUT, **STEADY, "training__epochs": 1, "training__images": 16}
    steps = {}
    for clip in (0.25, 1e9):
        weights, rows = run(
            shapes, tmp_path / f"{clip}", **how, training__optimizer={"learning_rate": 0.1, "clip": clip}
        )
        still, _ = run(shapes, tmp_path / f"{clip}s", **how, training__optimizer={"learning_rate": 1e-12, "clip": clip})
        names = [name for name in weights if name.startswith("decoder.") and name != "decoder.output.weight"]  # tied
        steps[clip] = math.sqrt(sum(float((weights[n] - still[n]).square().sum()) for n in names))
    norm = training(rows)[0]["gradient"]
    assert norm > 1
    assert steps[0.25] == pytest.approx(0.1 * 0.25, rel=1e-3)
    assert steps[1e9] == pytest.approx(0.1 * norm, rel=1e-3)


def test_captions_weigh_the_same_in_large_and_small_steps(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.config(shapes, training__images=4, training__captions=4)
    trainer = Trainer(config, new_folder(tmp_path / "run"), ALONE, False)
    shares = {}
    for images, captions in ((4, 4), (8, 1), (2, 4), (8, 2)):
        step = Batch(np.zeros(images, np.int64), np.zeros((images, captions), np.int64))
        shares[step.captions.size] = trainer.batch_loss.weight(step)
    assert shares == {16: 1.0, 8: 0.5}
