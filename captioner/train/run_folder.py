"""RunFolder: the files of a training run, by name. It needs neither torch nor pydantic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captioner.bundle.layout import MANIFEST, VOCABULARY, WEIGHTS
from captioner.errors import UsageError


class RunFolder:
    """The paths in a run folder, and what is in the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"  # with all defaults
        self.vocabulary = path / VOCABULARY
        self.checkpoint = path / "last.safetensors"  # everything needed to resume
        self.best_weights = path / "best" / WEIGHTS  # of the best validation
        self.best_scores = path / "best" / "scores.json"
        self.metrics = path / "metrics.jsonl"  # the same numbers whenever the run is repeated
        self.timing = path / "timing.jsonl"  # different each time
        self.board = path / "board"  # TensorBoard's files

    def is_run(self) -> bool:
        """Whether this is the folder of a run. A bundle has a manifest instead of a config."""
        return self.config.is_file() and not (self.path / MANIFEST).is_file()

    def check_writable(self) -> None:
        """Refuse to write a model over a run, a bundle or a file. A model that a script wrote may be replaced."""
        if self.checkpoint.exists():
            raise UsageError(f"{self.path} is a training run, whose best weights would be lost; give another folder")
        if (self.path / MANIFEST).exists() or (self.path.exists() and not self.path.is_dir()):
            raise UsageError(f"{self.path} is a {'bundle' if self.path.is_dir() else 'file'}; give another folder")

    def read_metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl: training metrics, and scores where a row has `validation`."""
        return _rows(self.metrics)

    def read_timing(self) -> list[dict[str, Any]]:
        """The rows of timing.jsonl, one per epoch."""
        return _rows(self.timing)


def model_folder(path: Path) -> Path:
    """The folder of a run or bundle, for that folder itself or for a run's best/."""
    return path.parent if path.name == "best" else path


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
