"""scripts/compare_attention, in small: every run is trained, measured, kept, and not made again."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from captioner.train import config as configs
from tests.train import tiny_run

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "compare_attention"
PAGE = "# Page\n\n<!-- table: scripts/compare_attention -->\nold\n<!-- end of table -->\n\nAfter.\n"
SMALL = (
    "data.train=[{captions: captions_train.json}]",
    "data.val=[{captions: captions_val.json}]",
    "data.minimum_count=1",
    f"encoder.size={tiny_run.SIZE}",
    "encoder.annotations=[stage3]",
    *(f"model.{name}_size=16" for name in ("annotation", "embedding", "hidden")),
    "model.attention.size=8",
    "training.epochs=2",
    "training.images=4",
    "training.threads=1",
    "training.validation.every=2",
)


def compare(data: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["--cache", data / "cache", "--runs", folder / "runs", "--output", folder / "docs"]
    command = [sys.executable, SCRIPT, data, *where, "--text", "a red circle", *arguments, "--set", *SMALL]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_runs_are_compared_in_a_table_a_file_and_a_picture_and_kept(shapes: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "attention.md").write_text(PAGE)
    done = compare(shapes, tmp_path, "--only", "heads")
    assert done.returncode == 0, done.stderr + done.stdout
    text = (docs / "attention.md").read_text()
    assert text.startswith("# Page\n") and text.endswith("\n\nAfter.\n") and "old" not in text
    named = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    assert named == ["choice", "heads"]
    assert "Budget: 2 epochs" in text and "Longer training may change the order" in text
    (file,) = (docs / "benchmarks").glob("attention-*.csv")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["name"] for row in rows] == ["heads"]
    for row in rows:
        assert float(row["cider_low"]) <= float(row["cider"]) <= float(row["cider_high"])
        assert float(row["epoch_seconds"]) > 0 and float(row["captions_per_second"]) > 0
        assert int(row["parameters"]) > 1000
        assert 0 < float(row["entropy"]) < 2.8  # log(16) is an even spread
    with Image.open(docs / "pictures" / "attention_family.png") as picture:
        assert picture.width > 3 * 112 and picture.height > 50

    more = compare(shapes, tmp_path, "--only", "gumbel")
    assert more.returncode == 0, more.stderr + more.stdout
    named = re.findall(r"^\| (.+?) \|", (docs / "attention.md").read_text(), re.MULTILINE)
    assert named == ["choice", "gumbel", "gumbel, argmax", "heads"]  # what an earlier call has made stays
    weights = tmp_path / "runs" / "heads" / "last.safetensors"
    before = weights.stat().st_mtime_ns
    again = compare(shapes, tmp_path, "--only", "heads")
    assert again.returncode == 0, again.stderr
    assert weights.stat().st_mtime_ns == before
    other = compare(shapes, tmp_path, "--only", "heads", "--set", "training.label_smoothing=0.2")
    assert other.returncode == 1
    assert "begun with other settings" in other.stderr


def test_a_choice_that_isn_t_there_names_the_nearest(tmp_path: Path) -> None:
    done = compare(tmp_path, tmp_path, "--only", "guassian")
    assert done.returncode == 1
    assert "unknown choice 'guassian'. Did you mean 'gaussian'?" in done.stderr


@pytest.fixture(scope="module")
def script() -> Any:
    loader = SourceFileLoader("compare_attention", str(SCRIPT))
    loaded = module_from_spec(spec_from_loader("compare_attention", loader))  # type: ignore[arg-type]
    sys.modules["compare_attention"] = loaded  # where its dataclasses look for their types
    loader.exec_module(loaded)
    return loaded


def test_every_choice_is_a_model_that_can_be_built_and_differs_from_the_first(script: Any) -> None:
    soft = configs.load(script.CONFIG).model
    for name, settings in script.CHOICES.items():
        model = configs.load(script.CONFIG, [f"model.{each}" for each in settings]).model
        assert (model == soft) == (name == "soft")


def test_soft_hard_and_the_transformer_have_a_second_seed(script: Any) -> None:
    runs = script.plan(Path("runs"), list(script.CHOICES), ["training.epochs=1"])
    assert len({run.folder for run in runs}) == len(runs)
    assert {run.folder.name for run in runs if run.seed == 2} == {"soft-seed2", "hard-seed2", "transformer-seed2"}
    assert all("seed=2" in run.settings() and "training.epochs=1" in run.settings() for run in runs if run.seed == 2)
