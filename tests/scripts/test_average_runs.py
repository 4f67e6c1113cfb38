"""scripts/average_runs writes the mean of several models as a run, and refuses models that don't fit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from captioner.export.run_bundle import export_run
from captioner.train import checkpoint
from captioner.train.loaded_run import load_best, load_last
from captioner.train.start import start
from tests.train import tiny_run

SCRIPT = Path(__file__).parents[2] / "scripts" / "average_runs"


def average(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True)


def test_the_mean_of_two_runs_can_be_exported_and_other_sizes_are_refused(shapes: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        config = tiny_run.write_config(
            tmp_path / f"{name}.yaml", shapes, training__epochs=1, training__ema=0.9, seed=seed
        )
        start(config, folder=tmp_path / name, device="cpu")
    done = average(tmp_path / "mean", tmp_path / "one", f"{tmp_path / 'two'}:last")
    assert done.returncode == 0, done.stderr
    one, two = load_best(tmp_path / "one").network, load_last(tmp_path / "two").network
    mean, _ = checkpoint.read(tmp_path / "mean" / "best" / "model.safetensors")
    different = 0
    for name, value in one.state_dict().items():
        torch.testing.assert_close(mean[name], ((value + two.state_dict()[name]) / 2).to(value.dtype))
        different += int(not torch.equal(value, two.state_dict()[name]))
    assert different > 5
    bundle = export_run(tmp_path / "mean", tmp_path / "bundle")
    assert bundle.manifest.scores == {}

    before = (tmp_path / "two" / "best" / "model.safetensors").read_bytes()
    refused = average(tmp_path / "two", tmp_path / "one")  # the output folder was forgotten
    assert refused.returncode == 1 and "is a training run" in refused.stderr
    assert (tmp_path / "two" / "best" / "model.safetensors").read_bytes() == before

    wide = tiny_run.write_config(tmp_path / "wide.yaml", shapes, training__epochs=1, model__hidden_size=12)
    start(wide, folder=tmp_path / "wide", device="cpu")
    refused = average(tmp_path / "none", tmp_path / "one", tmp_path / "wide")
    assert refused.returncode == 1
    assert "can't be averaged: encoder, sizes and vocabulary must be the same" in refused.stderr
    assert not (tmp_path / "none").exists()
    assert "has no best/model.safetensors" in average(tmp_path / "none", tmp_path / "nothing").stderr
