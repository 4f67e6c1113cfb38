"""What a run writes down: a resumed run drops what it will write again, to the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.train.logger import Journal
from captioner.train.progress_bar import Bar, clock, encoding_bar

LINES = [
    {"step": 5, "loss": 1.0},
    {"step": 5, "validation": {"CIDEr": 1.0}},
    {"step": 10, "loss": 0.5},
    {"step": 10, "validation": {"CIDEr": 2.0}},
    {"step": 15, "loss": 0.2},
]


@pytest.mark.parametrize(
    ("step", "validated", "kept"),
    [(0, True, 0), (5, False, 1), (5, True, 2), (7, False, 2), (10, False, 3), (10, True, 4), (20, True, 5)],
)
def test_lines_that_come_again_are_dropped(step: int, validated: bool, kept: int, tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    text = "".join(json.dumps(line) + "\n" for line in LINES)
    file.write_text(text + '{"step": 2, "lo')  # a line that a kill cut short
    Journal(tmp_path, step, validated=validated, writes=True).close()
    assert file.read_text() == "".join(json.dumps(line) + "\n" for line in LINES[:kept])


def test_only_the_leader_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal(tmp_path, 0, validated=True, writes=False)
    journal.metrics(1, loss=1.0)
    journal.timing(epoch=1)
    journal.say("something")
    journal.close()
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


def test_where_there_is_no_terminal_progress_is_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar(250, every=100)
    for done in range(7, 251, 9):  # never a multiple of a hundred
        bar.show(done, "working", 61.0)
    bar.close()
    shown = capsys.readouterr().err.splitlines()
    assert [line.split("/")[0] for line in shown] == ["7", "106", "205", "250"]
    assert shown[1] == "106/250 working, 1:01 left"


def test_encoding_says_its_speed_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    with encoding_bar() as show:
        show(100, 2000)
        show(2000, 2000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("100/2000 encoding, 0 images/s")
    assert lines[1].endswith("images/s, 0:00 left")


def test_durations_read_as_people_write_them() -> None:
    assert [clock(seconds) for seconds in (5, 65, 3600, 36125)] == ["0:05", "1:05", "1:00:00", "10:02:05"]
