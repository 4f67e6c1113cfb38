"""Reading text and JSON files with errors that say which file, where in it, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captioner.errors import CaptionerError, UsageError


def missing(path: Path, setting: str | None, kind: str = "file") -> UsageError:
    """The error for a path that isn't there; `setting` is the option or config key that named it."""
    source = f" (from {setting})" if setting else ""
    near = path.parent
    while not near.exists():
        near = near.parent
    hint = "" if near == path.parent else f"; the path exists as far as {near}"
    return UsageError(f"{path}: no such {kind}{source}{hint}")


def read_text(path: Path) -> str:
    """The file as text; a byte-order mark is dropped."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CaptionerError(
            f"{path}: not UTF-8 text (byte {error.start:,}); save the file as UTF-8 and try again"
        ) from None
    except OSError as error:
        raise CaptionerError(f"{path}: cannot be read ({error.strerror})") from None


def read_json(path: Path) -> Any:
    """The parsed file; broken or cut off JSON is an error that gives line and column."""
    text = read_text(path)
    if not text.strip():
        raise CaptionerError(f"{path}: the file is empty")
    return parse_json(text, str(path))


def parse_json(text: str, source: str, line: int | None = None) -> Any:
    """JSON of a file, or of one of its lines where `line` is given."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # A string that is never closed is reported where it opens: the end of the text is what is missing.
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if line is not None:
            what = "broken JSON"
        elif cut:
            what = f"the JSON is cut off (the file ends after {len(text):,} characters)"
        else:
            what = "broken JSON"
        raise CaptionerError(
            f"{source}: {what} at line {line or error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise CaptionerError(f"{source}: the JSON is nested too deeply to be a caption file") from None


def read_start(path: Path, size: int = 1 << 16) -> str:
    """The first part of a text file, leading blank space dropped: enough to tell its format."""
    try:
        with path.open("rb") as file:
            return file.read(size).decode("utf-8-sig", errors="replace").lstrip()
    except OSError as error:
        raise CaptionerError(f"{path}: cannot be read ({error.strerror})") from None
