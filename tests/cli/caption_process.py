"""`captioner caption` started as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from captioner import cli


def command(model: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "captioner", "caption", "--model", str(model), *arguments]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(cli.__file__).parents[2]), "PYTHONWARNINGS": ""}


def lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []
