"""Captions as a Parquet table: one row per caption, with its words and their probabilities as lists."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.caption import Caption
from captioner.errors import UsageError
from captioner.files.atomic import open_atomically
from captioner.installation import install_command
from captioner.writers.lines import record
from captioner.writers.wording import Wording

if TYPE_CHECKING:
    import pyarrow

ROWS = 1000  # captions of a row group
_ESCAPE = "u(d[89a-f][0-9a-f]{2}|005c)"


class ParquetWriter:
    """Writes to a temporary file that takes its name when it is closed, also after Ctrl-C.

    A resumed file is copied first, because a Parquet file cannot grow.
    """

    def __init__(self, path: Path, *, resume: bool = False, wording: Wording | None = None) -> None:
        self._pyarrow = pyarrow_library()
        self._wording = wording or Wording()
        self._rows: list[dict[str, Any]] = []
        self.finished: set[str] = set()
        older = _read(path) if resume and path.is_file() and path.stat().st_size else None
        self._file = ExitStack()
        self._writer = self._pyarrow.ParquetWriter(self._file.enter_context(open_atomically(path)), schema())
        if older is not None:
            self._writer.write_table(older)
            self.finished = set(map(_unescape, older.column("image").to_pylist()))

    def write(self, name: str, caption: Caption) -> None:
        self._rows += rows(name, caption, self._wording)
        if len(self._rows) >= ROWS:
            self._flush()

    def close(self) -> None:
        with self._file:
            try:
                self._flush()
                self._writer.close()
            finally:
                self._writer.is_open = (
                    False  # else pyarrow closes it again after a failure, and writes to a closed file
                )

    def _flush(self) -> None:
        import pyarrow

        if self._rows:
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, schema()))
        self._rows = []


def rows(name: str, caption: Caption, wording: Wording) -> list[dict[str, Any]]:
    """One row per caption, best first, with the values of a JSON line."""
    name = escape_name(name)
    table = []
    for rank, one in enumerate((caption, *caption.alternatives), 1):
        values = record(name, one, words=True, wording=wording)
        words = values.pop("words")
        values.pop("end")
        values.pop("alternatives", None)
        lists = {
            "words": [word["text"] for word in words],
            "probabilities": [word.probability for word in one.words],
            "gates": [word["gate"] for word in words],
            "entropies": [word["entropy"] for word in words],
        }
        table.append({**values, "rank": rank, **lists})
    return table


def schema() -> pyarrow.Schema:
    """The columns."""
    import pyarrow

    text, number = pyarrow.string(), pyarrow.float64()
    return pyarrow.schema(
        [
            ("image", text),
            ("rank", pyarrow.int32()),
            ("caption", text),
            ("sentence", text),
            ("confidence", number),
            ("score", number),
            ("log_probability", number),
            ("backend", text),
            ("words", pyarrow.list_(text)),
            *((name, pyarrow.list_(pyarrow.float32())) for name in ("probabilities", "gates", "entropies")),
        ]
    )


def pyarrow_library() -> Any:
    """The module pyarrow.parquet."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            f"--format parquet needs the package pyarrow ({error}): {install_command('parquet')}"
        ) from None
    return pyarrow.parquet


def escape_name(name: str) -> str:
    """A name as UTF-8: a byte that is not becomes \\udcXX as in JSON, and a backslash before such an escape \\u005c."""
    return re.sub(rf"[\ud800-\udfff]|\\(?={_ESCAPE})", lambda match: f"\\u{ord(match[0]):04x}", name)


def _unescape(name: str) -> str:
    return re.sub(rf"\\{_ESCAPE}", lambda match: chr(int(match[1], 16)), name)


def _read(path: Path) -> Any:
    import pyarrow

    try:
        table = pyarrow_library().read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UsageError(f"{path}: cannot resume, because this is not a Parquet file ({error})") from None
    if not table.schema.equals(schema()):
        raise UsageError(f"{path}: cannot resume, because its columns are not those of `captioner caption`")
    return table
