"""A short part of scripts/attack: a few seconds of every attack with files."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attack_suite import file_attacks

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", file_attacks.ATTACKS)
def test_no_hostile_file_gets_more_than_a_sentence(tmp_path: Path, name: str) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")])}
    command = [sys.executable, "-m", "attack_suite.file_attacks", name, str(tmp_path), "1", "8"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    tried, bad, examples = json.loads(done.stdout.splitlines()[-1])
    assert tried > 20
    assert bad == 0, examples


def test_an_attack_whose_process_hangs_is_a_bad_row_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "scripts" / "attack"))["main"]

    def hang(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if command[3] == "names":
            raise subprocess.TimeoutExpired(command, options["timeout"], stderr=b"at work")
        return subprocess.CompletedProcess(command, 0, "[30, 0, []]", "")

    monkeypatch.setattr(subprocess, "run", hang)
    monkeypatch.setattr(sys, "argv", ["attack", "--only", "names", "--only", "configs"])
    assert main() == 1
    rows, examples = capsys.readouterr()
    assert [line.split() for line in rows.splitlines()[1:]] == [["names", "1", "1"], ["configs", "30", "0"]]
    assert "did not end within 270 s" in examples and "at work" in examples
