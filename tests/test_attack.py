"""A short part of scripts/attack: a few seconds of every attack with files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
