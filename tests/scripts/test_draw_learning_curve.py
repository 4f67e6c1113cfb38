"""scripts/draw_learning_curve: every run is drawn and in the table, also one whose values are all equal."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCORES = dict.fromkeys(("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr"), 0.0)


def write_run(folder: Path, epochs: list[float], bleu: float) -> Path:
    folder.mkdir()
    rows = [{"epoch": epoch, "nll": 5 - epoch} for epoch in epochs]
    rows += [{"epoch": epochs[-1], "validation": SCORES | {"BLEU-4": bleu}}]  # type: ignore[dict-item]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def draw(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "draw_learning_curve"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_points_lie_where_the_values_are(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "soft", [1, 2], 20.0), write_run(tmp_path / "hard", [1, 2], 10.0)]
    done = draw(tmp_path / "curve.svg", *runs)
    assert done.returncode == 0, done.stderr
    assert "| hard | 2 | 0.0 | 0.0 | 0.0 | 10.0 | 0.0 |" in done.stdout
    circles = ET.parse(tmp_path / "curve.svg").findall(".//{*}circle")
    heights = [float(circle.attrib["cy"]) for circle in circles]
    assert len(circles) == 6
    bottom, top = 206, 26
    assert heights[-2:] == [top, (bottom + top) / 2]  # BLEU-4: 20 is the highest, 10 is half of it


def test_a_run_that_learned_nothing_is_drawn_and_too_many_runs_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "flat", [0], 0.0)
    assert draw(tmp_path / "flat.svg", run).returncode == 0
    assert "nan" not in (tmp_path / "flat.svg").read_text()
    done = draw(tmp_path / "many.svg", *[run] * 5)
    assert done.returncode == 1 and "4 runs at most" in done.stderr
    assert not (tmp_path / "many.svg").exists()
