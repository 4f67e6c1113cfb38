"""scripts/compare_attention with tiny models: each run is trained, evaluated and reported once."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from captioner.train import config_file as configs
from tests.train import tiny_run

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "compare_attention"
pytestmark = pytest.mark.slow
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
    folders: list[str | Path] = ["--cache", data / "cache", "--runs", folder / "runs", "--output", folder / "docs"]
    options = [*folders, "--text", "a red circle", *arguments, "--set", *SMALL]
    command: list[str | Path] = [sys.executable, SCRIPT, data, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.slow
def test_runs_are_reported_in_a_table_a_csv_file_and_a_picture_and_not_repeated(shapes: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "attention.md").write_text(PAGE)
    done = compare(shapes, tmp_path, "--only", "heads")
    assert done.returncode == 0, done.stderr + done.stdout
    text = (docs / "attention.md").read_text()
    assert text.startswith("# Page\n") and text.endswith("\n\nAfter.\n") and "old" not in text
    names = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    assert names == ["mechanism", "heads"]
    assert "trains for 2 epochs" in text and "Longer training may change the order" in text
    (file,) = (docs / "benchmarks").glob("attention-*.csv")
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["name"] for row in rows] == ["heads"]
    for row in rows:
        assert float(row["cider_low"]) <= float(row["cider"]) <= float(row["cider_high"])
        assert float(row["epoch_seconds"]) > 0 and float(row["captions_per_second"]) > 0
        assert int(row["parameters"]) > 1000
        assert 0 < float(row["entropy"]) < 2.8  # uniform attention has log(16)
    with Image.open(docs / "pictures" / "attention_family.png") as picture:
        assert picture.width > 3 * 112 and picture.height > 50

    more = compare(shapes, tmp_path, "--only", "gumbel")
    assert more.returncode == 0, more.stderr + more.stdout
    names = re.findall(r"^\| (.+?) \|", (docs / "attention.md").read_text(), re.MULTILINE)
    assert names == ["mechanism", "gumbel", "gumbel, argmax", "heads"]  # with the row of the earlier call
    weights = tmp_path / "runs" / "heads" / "last.safetensors"
    before = weights.stat().st_mtime_ns
    again = compare(shapes, tmp_path, "--only", "heads")
    assert again.returncode == 0, again.stderr
    assert weights.stat().st_mtime_ns == before
    other = compare(shapes, tmp_path, "--only", "heads", "--set", "training.label_smoothing=0.2")
    assert other.returncode == 1
    assert "started with other settings" in other.stderr


def test_an_unknown_mechanism_gets_a_suggestion(tmp_path: Path) -> None:
    done = compare(tmp_path, tmp_path, "--only", "guassian")
    assert done.returncode == 1
    assert "unknown mechanism 'guassian'. Did you mean 'gaussian'?" in done.stderr


@pytest.fixture
def scripts_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


@pytest.mark.usefixtures("scripts_importable")
def test_every_mechanism_is_a_valid_model_and_all_but_the_first_differ_from_the_default() -> None:
    from attention_comparison.mechanisms import MECHANISMS
    from attention_comparison.runs import CONFIG

    default = configs.load(CONFIG).model
    for name, settings in MECHANISMS.items():
        model = configs.load(CONFIG, [f"model.{setting}" for setting in settings]).model
        assert (model == default) == (name == "soft")


@pytest.mark.usefixtures("scripts_importable")
def test_soft_hard_and_the_transformer_have_a_second_seed() -> None:
    from attention_comparison.mechanisms import MECHANISMS
    from attention_comparison.runs import plan_runs

    runs = plan_runs(Path("runs"), list(MECHANISMS), ["training.epochs=1"])
    assert len({run.folder for run in runs}) == len(runs)
    assert {run.name for run in runs if run.seed == 2} == {"soft-seed2", "hard-seed2", "transformer-seed2"}
    assert all("seed=2" in run.settings() and "training.epochs=1" in run.settings() for run in runs if run.seed == 2)
