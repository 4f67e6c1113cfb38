"""RunFolder: the files of a training run, by name. It needs neither torch nor pydantic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from captioner.bundle.layout import BUNDLE_FILES, MANIFEST, VOCABULARY, WEIGHTS
from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import UNFINISHED
from captioner.files.existing import check_only_own_files, remove_own_files

# The files that a run consists of. `train --overwrite` deletes these and nothing else.
_OWN_FILES = (
    *(f"bundle/{name}" for name in BUNDLE_FILES),
    *("config.yaml", VOCABULARY, "last.safetensors", f"best/{WEIGHTS}", "best/scores.json"),
    *(
        "split.json",
        "metrics.jsonl",
        "timing.jsonl",
        "board/events.out.tfevents.*",
        "run.lock",
        UNFINISHED,
        f"best/{UNFINISHED}",
    ),
)


class RunFolder:
    """The paths in a run folder, and what is in the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"  # with all defaults
        self.vocabulary = path / VOCABULARY
        self.checkpoint = path / "last.safetensors"  # everything needed to resume
        self.best_weights = path / "best" / WEIGHTS  # of the best validation
        self.best_scores = path / "best" / "scores.json"
        self.split = path / "split.json"  # of a run whose data.val is a share
        self.metrics = path / "metrics.jsonl"  # the same numbers whenever the run is repeated
        self.timing = path / "timing.jsonl"  # different each time
        self.board = path / "board"  # TensorBoard's files
        self.lock = path / "run.lock"  # held by the process that trains; its presence marks a folder of this program

    def is_run(self) -> bool:
        """Whether this is the folder of a run. A bundle has a manifest instead of a config."""
        return self.config.is_file() and not (self.path / MANIFEST).is_file()

    def check_replaceable(self) -> None:
        """Refuse to remove a folder that is not a training run of this program, or that holds other files too."""
        if not self.lock.is_file() and not self.checkpoint.is_file():
            raise UsageError(
                f"--overwrite: {self.path} is not a run folder (it has neither {self.lock.name} nor "
                f"{self.checkpoint.name}); it was not changed"
            )
        check_only_own_files(self.path, _OWN_FILES, "training run")

    def remove(self) -> None:
        """Delete the files of the run, and the folder if nothing else is in it."""
        remove_own_files(self.path, _OWN_FILES)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's lock. A second process that trains into the same folder is refused."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.lock, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise UsageError(
                f"{self.path}: another process is training into this folder; wait for it or stop it"
            ) from None
        try:
            yield
        finally:
            if self.path.is_dir() and list(self.path.iterdir()) == [self.lock]:
                self.lock.unlink()  # the run failed before it wrote anything: the folder stays free
            lock.release()

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
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise CaptionerError(f"{path}: line {number} is damaged; remove it")
        rows.append(row)
    return rows
