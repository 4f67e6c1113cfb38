"""scripts/make_card replaces the measured sections of a card and keeps those written by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from captioner.cli import main
from captioner.train.start import start
from card_sections import curve_lines
from tests.train import tiny_run

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_card"


@pytest.mark.slow
def test_measured_sections_are_replaced_and_the_others_stay(shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(
        tmp_path / "tiny.yaml", shapes, training__epochs=2, training__scst={"start_epoch": 1}
    )
    run = tmp_path / "first"
    start(config, folder=run, device="cpu")
    arguments = ["--model", run, "--data", shapes / "captions_val.json", "--split", "val", "--json", "--boxes", shapes]
    evaluation = CliRunner().invoke(main, ["evaluate", *map(str, arguments)]).stdout
    (tmp_path / "evaluation.json").write_text(evaluation)
    (tmp_path / "whole.json").write_text(json.dumps({"captions": {"vocabulary": 512, "captions": 4385}, "notes": []}))
    inputs: list[str | Path] = ["--evaluation", tmp_path / "evaluation.json", "--runs", run]
    inputs += ["--whole", tmp_path / "whole.json"]
    done = subprocess.run(
        [sys.executable, SCRIPT, "default", "--model", "default", *inputs],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    before = (ROOT / "weights" / "default" / "README.md").read_text(encoding="utf-8")
    for title in ("Data and licences", "Limits"):
        text = before.split(f"## {title}\n")[1].split("\n## ")[0]
        assert text in done.stdout
    assert done.stdout.startswith(before.split("## ")[0])
    assert [line for line in done.stdout.splitlines() if line.startswith("## ")] == [
        line for line in before.splitlines() if line.startswith("## ")
    ]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| first, ")]
    assert ["cross-entropy" in rows[0], "self-critical" in rows[1], len(rows)] == [True, True, 2]
    for name, score in json.loads(evaluation)["scores"].items():
        assert f"| {name} | {score:.1f} |" in done.stdout
    if json.loads(evaluation)["boxes"]:
        assert "| pointing game | " in done.stdout and "CHAIRi" in done.stdout
    assert " captions, 512 over all 4,385 of the split" in done.stdout
    assert_only_objects_are_replaced(tmp_path, run, shapes)
    captions = [line for line in done.stdout.splitlines() if line.startswith("| `examples/")]
    assert len(captions) == len(list((ROOT / "examples").glob("*.jpg")))

    (tmp_path / "other.json").write_text("[]")
    part = json.loads(evaluation) | {"notes": ["images 1,001 to 4,385 of 4,385 (--offset, --limit)"]}
    (tmp_path / "part.json").write_text(json.dumps(part))
    complete = tmp_path / "evaluation.json"
    for wrong, why in (
        ([tmp_path / "missing.json"], "No such file"),
        ([tmp_path / "other.json"], "need output of this version's `captioner evaluate --json`"),
        ([complete, "--whole", tmp_path / "part.json"], "is not about all images"),
    ):
        inputs = ["--evaluation", *wrong, "--runs", run]
        refused = subprocess.run(
            [sys.executable, SCRIPT, "default", "--model", "default", *inputs], capture_output=True, text=True
        )
        assert refused.returncode == 1
        assert refused.stderr.startswith("make_card: ") and why in refused.stderr
        assert refused.stdout == ""


def assert_only_objects_are_replaced(folder: Path, run: Path, shapes: Path) -> None:
    arguments = ["--model", run, "--data", shapes / "captions_val.json", "--split", "val", "--json", "--boxes", shapes]
    arguments += ["--limit", "2", "--randomised", "2", "--backend", "torch", "--no-likelihood"]
    evidence = CliRunner().invoke(main, ["evaluate", *map(str, arguments)]).stdout
    (folder / "evidence.json").write_text(evidence)
    figure = {"value": {"value": 0.512, "low": 0.4, "high": 0.6}, "even": 0.25, "elsewhere": None}
    boxes = {"images": 7, "nouns": 9, "absent": 3, "mass": figure, "pointing": figure}
    boxes |= {"absent_share": {"value": 0.25, "low": 0.1, "high": 0.4}}
    boxes |= {"sizes": {"small": {"nouns": 1, "pointing": figure}, "large": {"nouns": 1234, "pointing": figure}}}
    boxes |= {"labels": {"cat": {"nouns": 9, "pointing": 0.512}}}
    evaluation = json.loads((folder / "evaluation.json").read_text()) | {"boxes": boxes}
    evaluation["notes"] = ["images 1,001 to 4,385 of 4,385 (--offset, --limit)"]
    (folder / "boxes.json").write_text(json.dumps(evaluation))

    inputs = ["--evaluation", folder / "boxes.json", "--evidence", folder / "evidence.json", "--only-objects"]
    done = subprocess.run([sys.executable, SCRIPT, "hard", *map(str, inputs)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before = (ROOT / "weights" / "hard" / "README.md").read_text(encoding="utf-8")
    assert "| pointing game, small objects (1 noun) | 51.2 % (40.0 to 60.0) | 25.0 % | - |" in done.stdout
    assert "| pointing game, large objects (1,234 nouns) | 51.2 %" in done.stdout
    assert "Mentioned objects without a box in the picture: 25.0 % (10.0 to 40.0) of 12. " in done.stdout
    assert "--split val --offset 1000 \\\n" in done.stdout
    assert "cat 51 % of 9" in done.stdout and "(`--randomised`, 2 images)" in done.stdout
    title = "## Attention and objects\n"
    assert done.stdout.split(title)[0] == before.split(title)[0]
    assert done.stdout.split(title)[1].split("\n## ")[1:] == before.split(title)[1].split("\n## ")[1:]

    (folder / "none.json").write_text(json.dumps(evaluation | {"boxes": None}))
    for arguments, why in (
        (["--evaluation", folder / "none.json", "--only-objects"], "evaluate with --boxes"),
        (["--evaluation", folder / "boxes.json"], "give --model and --runs"),
    ):
        refused = subprocess.run([sys.executable, SCRIPT, "hard", *map(str, arguments)], capture_output=True, text=True)
        assert refused.returncode and why in refused.stderr


def test_a_curve_is_shown_with_the_command_that_draws_it_and_its_log(tmp_path: Path) -> None:
    """The command in the text draws the picture in the text again."""
    runs = []
    for name in ("base", "tuned"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        row = {"step": 50, "epoch": 1, "nll": 2.0} if name == "base" else {"step": 50, "epoch": 1, "reward": 1.0}
        (tmp_path / "runs" / name / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        runs.append(tmp_path / "runs" / name)
    assert list(curve_lines(tmp_path / "docs", "default", runs)) == []

    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    picture, log = tmp_path / "docs" / "pictures" / "curve-default.svg", tmp_path / "docs" / "logs" / "default.jsonl"
    draw = [sys.executable, str(ROOT / "scripts" / "draw_learning_curve")]
    for keep_log in ([], ["--log", str(log)]):
        subprocess.run([*draw, "--chain", *keep_log, str(picture), *map(str, runs)], check=True, timeout=60)
        drawn = picture.read_bytes()
        lines = list(curve_lines(tmp_path / "docs", "default", runs))
        assert "../../docs/pictures/curve-default.svg" in "\n".join(lines)
        assert ("../../docs/logs/default.jsonl" in "\n".join(lines)) == bool(keep_log)
        (command,) = [line for line in lines if line.startswith("scripts/")]
        picture.unlink()
        subprocess.run([*draw, *command.split()[1:]], cwd=tmp_path, check=True, timeout=60)
        assert picture.read_bytes() == drawn
