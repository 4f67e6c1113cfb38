"""The summary of a captioning run: what was captioned, what was not, and why."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import write_atomically
from captioner.images.file_kinds import file_kind
from captioner.images.inputs import Skipped
from captioner.images.reading import source_name
from captioner.installation import install_command
from captioner.text.json_text import to_json

T = TypeVar("T")

# Words for the groups in the summary's line: one, and several.
_WORDS = {
    "raw": ("raw", "raw"),
    "HEIC": ("HEIC", "HEIC"),
    "video": ("video", "videos"),
    "folder not entered": ("folder not entered", "folders not entered"),
    "linked folder not entered": ("linked folder not entered", "linked folders not entered"),
    "empty folder": ("folder without pictures", "folders without pictures"),
    "sidecar": ("caption not written to its photo", "captions not written to their photos"),
    "missing": ("missing", "missing"),
    "unsure": ("unsure", "unsure"),
    "unreadable": ("unreadable", "unreadable"),
}
DOUBTFUL = 0.25  # captions with a lower confidence are counted at the end of a run; most are of no photos
_PICTURES = ("raw", "HEIC", "unreadable", "missing", "sidecar")
_ORDER = ("raw", "HEIC", "unreadable", "missing", "sidecar", "unsure", "drawing", "video", "empty folder")


class RunSummary:
    """Counts what a run captioned, and lists what it did not, with the reasons."""

    def __init__(self, *skipped: Iterable[Skipped], verb: str = "captioned") -> None:
        """`skipped` are lists of inputs that were left out before the run began. `verb` is for the line."""
        self.backend: str | None = None  # what computed the captions
        self.captioned = 0
        self.finished_before = 0  # captions that a resumed run found
        self.skipped = [entry for entries in skipped for entry in entries]
        self.kept: list[str] = []  # existing files that were not changed
        self.doubtful = 0  # captions with a confidence below DOUBTFUL that were written as any other
        self.is_complete = False  # whether the run reached its end
        self._verb = verb

    def without_finished(self, pictures: Iterable[T], is_finished: Callable[[str], bool]) -> Iterator[T]:
        """The pictures that an earlier run has not finished; the others are counted."""
        for picture in pictures:
            if is_finished(source_name(picture)):
                self.finished_before += 1
            else:
                yield picture

    def add_failure(self, name: str, reason: str, group: str | None = None) -> None:
        """A picture without a caption. Without `group`, the file's kind decides."""
        kind = file_kind(Path(name))
        if group is None:
            group = kind.group if kind.group in ("raw", "HEIC", "drawing", "video") else "unreadable"
            group = "missing" if reason.endswith(": no such file") else group
        self.skipped.append(Skipped(name, group, reason, kind.format if group in ("raw", "drawing", "video") else ""))

    def line(self) -> str | None:
        """One line for standard error. None if every input was captioned."""
        if not self.skipped:
            return None
        before = f" ({self.finished_before:,} before)" if self.finished_before else ""
        groups = Counter(entry.group for entry in self.skipped)
        ordered = [*(group for group in _ORDER if group in groups), *(group for group in groups if group not in _ORDER)]
        parts = ", ".join(part for group in ordered for part in self._parts(group, groups[group]))
        return f"{self.captioned:,} {self._verb}{before}, {len(self.skipped):,} skipped: {parts}"

    def doubt_line(self) -> str:
        """A note about captions that are probably wrong."""
        captions = "1 caption has" if self.doubtful == 1 else f"{self.doubtful:,} captions have"
        return f"note: {captions} a confidence below {DOUBTFUL}; --min-confidence marks or skips such captions"

    def _parts(self, group: str, count: int) -> list[str]:
        formats = Counter(entry.format for entry in self.skipped if entry.group == group)
        if group == "drawing":  # each format is its own word
            return [f"{number:,} {format}" for format, number in formats.items()]
        word = _WORDS.get(group, (group, group))[count > 1]
        notes = {
            "raw": ", ".join(formats),
            "video": ", ".join(formats),
            "HEIC": _heic_note(self.skipped),
            "folder not entered": "use -r",
        }
        note = notes.get(group, "")
        return [f"{count:,} {word} ({note})" if note else f"{count:,} {word}"]

    def record(self) -> dict[str, Any]:
        """The summary as JSON: the counts, and every name with its reason."""
        return {
            "complete": self.is_complete,
            "backend": self.backend,
            "captioned": self.captioned,
            "finished_before": self.finished_before,
            "skipped": len(self.skipped),
            "counts": dict(Counter(entry.format or entry.group for entry in self.skipped)),
            "inputs": [
                {"image": entry.name, "kind": entry.group, "format": entry.format, "reason": entry.reason}
                for entry in self.skipped
            ],
            "kept": self.kept,
        }

    def write(self, path: Path) -> None:
        try:
            write_atomically(path, to_json(self.record(), indent=1) + "\n")
        except OSError as error:
            raise CaptionerError(f"--summary {path}: cannot be written ({error.strerror or error})") from None


def read_failed(path: Path) -> list[str]:
    """The pictures of a summary that were not captioned. Folders, drawings and videos are none."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["inputs"]
        names = [entry["image"] for entry in entries if entry["kind"] in _PICTURES]
        if not all(isinstance(name, str) for name in names):
            raise TypeError
    except OSError as error:
        raise UsageError(f"--retry {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"--retry {path}: not a file of `captioner caption --summary`") from None
    return list(dict.fromkeys(names))


def _heic_note(skipped: Iterable[Skipped]) -> str:
    missing = any(entry.group == "HEIC" and "pillow-heif" in entry.reason for entry in skipped)
    return install_command("heic") if missing else ""
