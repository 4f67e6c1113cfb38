"""Read text and JSON files. Errors name the file, the position and what to do."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from captioner.errors import CaptionerError, UsageError
from captioner.files import zip_paths


def missing(path: Path, setting: str | None, kind: str = "file") -> UsageError:
    """The error for a missing path. `setting` is the option or config key that named it."""
    origin = f" (from {setting})" if setting else ""
    existing = path.parent
    while not existing.exists():
        existing = existing.parent
    hint = "" if existing == path.parent else f"; the path exists as far as {existing}"
    return UsageError(f"{path}: no such {kind}{origin}{hint}")


def read_text(path: Path) -> str:
    """The file as text, without a byte-order mark. A file that ends in .gz is unpacked."""
    try:
        with zip_paths.open_binary(path) as file:
            content = file.read()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CaptionerError(f"{path}: not a complete gzip file ({error})") from None
    except UnicodeDecodeError as error:
        raise CaptionerError(
            f"{path}: not UTF-8 text (byte {error.start:,}); save the file as UTF-8 and try again"
        ) from None
    except OSError as error:
        raise CaptionerError(f"{path}: cannot be read ({error.strerror})") from None


def read_json(path: Path) -> Any:
    """The parsed file. The error for broken or cut off JSON has the line and column."""
    text = read_text(path)
    if not text.strip():
        raise CaptionerError(f"{path}: the file is empty")
    return parse_json(text, str(path))


def parse_json(text: str, source: str, line: int | None = None) -> Any:
    """Parse the text of a file, or of one of its lines if `line` is given."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        # Python reports an unterminated string at its start, but the text is cut off at its end.
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string")
        if line is not None:
            problem = "broken JSON"
        elif cut:
            problem = f"the JSON is cut off (the file ends after {len(text):,} characters)"
        else:
            problem = "broken JSON"
        raise CaptionerError(
            f"{source}: {problem} at line {line or error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError:  # the only other one: a number of thousands of digits
        raise CaptionerError(f"{source}: the JSON has a number that is too large to read") from None
    except RecursionError:
        raise CaptionerError(f"{source}: the JSON is nested too deeply to be a caption file") from None


def is_utf16(path: Path) -> bool:
    """Whether a file begins with the byte order mark of UTF-16, as some programs save "Unicode" text."""
    with zip_paths.open_binary(path) as file:
        return file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_start(path: Path, size: int = 1 << 16) -> str:
    """The beginning of a text file without leading white space: enough to detect its format."""
    try:
        with zip_paths.open_binary(path) as file:
            return file.read(size).decode("utf-8-sig", errors="replace").lstrip()
    except OSError as error:
        raise CaptionerError(f"{path}: cannot be read ({error.strerror})") from None
