"""The log of a run: a resumed run drops the rows that it will write again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.train.logger import Logger
from captioner.train.run_folder import RunFolder

LINES = [
    {"step": 5, "loss": 1.0},
    {"step": 5, "validation": {"CIDEr": 1.0}},
    {"step": 10, "loss": 0.5},
    {"step": 10, "validation": {"CIDEr": 2.0}},
    {"step": 15, "loss": 0.2},
]


@pytest.mark.parametrize(
    ("step", "validated", "remaining"),
    [(0, True, 0), (5, False, 1), (5, True, 2), (7, False, 2), (10, False, 3), (10, True, 4), (20, True, 5)],
)
def test_a_resumed_run_drops_the_rows_that_it_will_write_again(
    step: int, validated: bool, remaining: int, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    file.write_text(text + '{"step": 2, "lo')  # the process was killed while writing this line
    Logger(RunFolder(tmp_path), step, validated=validated, writes=True).close()
    assert file.read_text() == "".join(json.dumps(line) + "\n" for line in LINES[:remaining])


def test_only_the_main_process_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = Logger(RunFolder(tmp_path), 0, validated=True, writes=False)
    logger.metrics(1, loss=1.0)
    logger.timing(epoch=1)
    logger.info("something")
    logger.close()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""
