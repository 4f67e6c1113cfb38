"""scripts/draw_learning_curve: points lie where the values are, and the short log gives the same picture."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCORES = dict.fromkeys(("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr"), 0.0)
BOTTOM, TOP, LEFT, RIGHT = 206, 26, 44, 344  # of the first panel


def write_run(folder: Path, rows: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def cross_entropy(epochs: list[float], bleu: float = 0.0, cider: float = 0.0) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"step": int(100 * epoch), "epoch": epoch, "nll": 5 - epoch} for epoch in epochs]
    scores = SCORES | {"BLEU-4": bleu, "CIDEr": cider}
    return [*rows, {"step": int(100 * epochs[-1]), "epoch": epochs[-1], "validation": scores}]


def self_critical(rewards: list[float], cider: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"step": 100 * n, "epoch": n, "reward": reward} for n, reward in enumerate(rewards, 1)
    ]
    return [*rows, {"step": 100 * len(rewards), "epoch": len(rewards), "validation": SCORES | {"CIDEr": cider}}]


def draw(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "draw_learning_curve"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def panels(picture: Path) -> dict[str, list[tuple[float, float]]]:
    """The points of each panel as shares of the width and the height of its axes."""
    found: dict[str, list[tuple[float, float]]] = {}
    left, top, points = 0.0, 0.0, []
    for element in ET.parse(picture).getroot():
        kind = element.tag.rpartition("}")[2]
        if kind == "text" and any(word in str(element.text) for word in ("likelihood", "reward", "validation")):
            left, top = float(element.attrib["x"]), float(element.attrib["y"]) - 16 + TOP
            points = found.setdefault(str(element.text), [])
        elif kind == "circle":
            x, y = float(element.attrib["cx"]), float(element.attrib["cy"])
            points.append((round((x - left) / (RIGHT - LEFT), 3), round(1 - (y - top) / (BOTTOM - TOP), 3)))
    return found


def test_points_lie_where_the_values_are(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, cross_entropy([1, 2], bleu))
        for name, bleu in (("soft", 20.0), ("hard", 10.0), ("other", 15.0))
    ]
    done = draw(tmp_path / "curve.svg", *runs)
    assert done.returncode == 0, done.stderr
    assert "| hard | 2 | 0.0 | 0.0 | 0.0 | 10.0 | 0.0 |" in done.stdout
    found = panels(tmp_path / "curve.svg")
    assert found["negative log-likelihood per word"] == [(0.5, 1.0), (1.0, 0.0)] * 3
    assert found["BLEU-4 of the validation"] == [(1.0, 1.0), (1.0, 0.0), (1.0, 0.5)]
    assert "reward, times 100 (self-critical)" not in found


def test_a_run_that_learned_nothing_is_drawn_and_too_many_runs_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "flat", cross_entropy([0]))
    assert draw(tmp_path / "flat.svg", run).returncode == 0
    assert "nan" not in (tmp_path / "flat.svg").read_text()
    done = draw(tmp_path / "many.svg", *[run] * 5)
    assert done.returncode == 1 and "4 runs at most" in done.stderr
    assert not (tmp_path / "many.svg").exists()


def test_a_chain_goes_on_where_the_run_before_ended_and_shows_reward_and_cider(tmp_path: Path) -> None:
    """Two epochs of cross-entropy, then two self-critical ones: the epochs of the picture are 1 to 4."""
    base = write_run(tmp_path / "base", cross_entropy([1, 2], cider=90.0))
    tuned = write_run(tmp_path / "tuned", self_critical([1.0, 2.0], cider=100.0))
    done = draw("--chain", tmp_path / "chain.svg", base, tuned)
    assert done.returncode == 0, done.stderr
    found = panels(tmp_path / "chain.svg")
    assert found["negative log-likelihood per word"] == [(0.25, 1.0), (0.5, 0.0)]
    assert found["reward, times 100 (self-critical)"] == [(0.75, 0.0), (1.0, 1.0)]
    assert found["CIDEr of the validation"] == [(0.5, 0.0), (1.0, 1.0)]
    text = (tmp_path / "chain.svg").read_text()
    assert ">epoch 4<" in text and ">200.0<" in text

    assert draw(tmp_path / "beside.svg", base, tuned).returncode == 0  # without --chain, both begin at 0
    assert panels(tmp_path / "beside.svg")["reward, times 100 (self-critical)"] == [(0.5, 0.0), (1.0, 1.0)]


def test_the_log_of_long_runs_is_short_and_gives_the_same_picture(tmp_path: Path) -> None:
    def steps(name: str, start: float) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for step in range(50, 12_001, 50):
            row = {"step": step, "epoch": round(step / 2000, 4), "rate": 1e-4 / 3, name: start + step / 7000}
            rows.append(row | {"gradient": 1 / 3, "grounding": 2 / 3, "cell_categories": 1 / 7, "loss": 22 / 7})
            if step % 2000 == 0:
                rows.append({"step": step, "epoch": step // 2000, "validation": SCORES | {"CIDEr": 90 + step / 3000}})
        return rows

    runs = [write_run(tmp_path / "base", steps("nll", 2.0)), write_run(tmp_path / "tuned", steps("reward", 3.0))]
    log = tmp_path / "runs" / "model.jsonl"
    first = draw("--chain", "--log", log, tmp_path / "first.svg", *runs)
    assert first.returncode == 0, first.stderr
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert 50 < len(rows) <= 100 and log.stat().st_size < 40_000
    validations = [(row["run"], row["epoch"]) for row in rows if "validation" in row]
    assert validations == [(name, epoch) for name in ("base", "tuned") for epoch in range(1, 7)]

    again = draw("--chain", tmp_path / "again.svg", log)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "first.svg").read_bytes()


def test_rows_of_the_log_are_means_over_the_steps_of_one_stage_of_one_epoch(tmp_path: Path) -> None:
    """A row of 50 steps and one of 25 steps: (50 * 4 + 25 * 1) / 75 = 3."""
    rows: list[dict[str, Any]] = []
    for epoch in range(30):
        rows += [
            {"step": 75 * epoch + 50, "epoch": round(epoch + 0.6667, 4), "nll": 4.0},
            {"step": 75 * epoch + 75, "epoch": epoch + 1, "nll": 1.0},
            {"step": 75 * epoch + 75, "epoch": epoch + 1, "validation": SCORES},
        ]
    rows += [{"step": 2300, "epoch": 30.5, "nll": 9.0}, {"step": 2350, "epoch": 31, "reward": 0.5}]
    run = write_run(
        tmp_path / "run", [*rows, *({"step": n, "epoch": 31, "reward": 0.5} for n in range(2400, 3000, 50))]
    )
    assert draw("--log", tmp_path / "log.jsonl", tmp_path / "curve.svg", run).returncode == 0
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert log[0] == {"run": "run", "step": 75, "epoch": 1, "nll": 3.0}
    assert [row["nll"] for row in log if "nll" in row] == [3.0] * 30 + [9.0]
    assert {row["reward"] for row in log if "reward" in row} == {0.5}


def test_the_last_few_steps_of_an_epoch_join_the_row_before_them(tmp_path: Path) -> None:
    rows = [{"step": 50, "epoch": 0.49, "reward": 1.0}, {"step": 100, "epoch": 0.99, "reward": 2.0}]
    rows += [{"step": 101, "epoch": 1.0, "reward": 9.0}, {"step": 151, "epoch": 1.5, "reward": 3.0}]
    run = write_run(tmp_path / "run", rows)
    assert draw("--log", tmp_path / "log.jsonl", tmp_path / "curve.svg", run).returncode == 0
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(row["step"], round(row["reward"], 3)) for row in log] == [(50, 1.0), (101, 2.137), (151, 3.0)]


@pytest.mark.parametrize("content", [None, "[]", "{", '{"epoch": 1}'], ids=["missing", "list", "damaged", "no run"])
def test_a_file_that_is_no_log_is_refused_in_one_line(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "log.jsonl"
    if content is not None:
        file.write_text(content + "\n")
    done = draw(tmp_path / "curve.svg", file)
    assert done.returncode == 1
    assert done.stderr.startswith("draw_learning_curve: ") and len(done.stderr.splitlines()) == 1
