"""Captions as lines of text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TextIO

from captioner.caption import Caption, Word
from captioner.errors import UsageError
from captioner.terminal import UNPRINTABLE, printable
from captioner.text.json_text import to_json
from captioner.writers.wording import Wording

LineFormat = Literal["text", "jsonl", "csv"]
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
COLUMNS = ("image", "rank", "caption", "sentence", "confidence", "score", "log_probability", "backend")


class LineWriter:
    """Writes one line per caption; JSON has one line per picture, with its alternatives inside."""

    def __init__(
        self,
        file: TextIO,
        format: LineFormat,
        *,
        words: bool = False,
        append: bool = False,
        wording: Wording | None = None,
        escape_formulas: bool = False,
    ) -> None:
        """`append`: the file already has its first lines. `words`: JSON lines have the values of each word.

        `wording` makes the captions of text lines. JSON and CSV have the plain words and the sentence.
        `escape_formulas` puts an apostrophe before CSV cells that a spreadsheet would compute.
        """
        self._file, self._format, self._words, self._escape_formulas = file, format, words, escape_formulas
        self._wording = wording or Wording()
        if format == "csv" and not append:
            self._write(_csv([COLUMNS]))

    def write(self, name: str, caption: Caption) -> None:
        captions = (caption, *caption.alternatives)
        if self._format == "text":
            self._write("".join(f"{_escape(name)}\t{self._wording.text(one)}{self._mark(one)}\n" for one in captions))
        elif self._format == "csv":
            rows = (
                (name, rank, *_texts(one, self._wording).values(), *_scores(one).values(), one.backend)
                for rank, one in enumerate(captions, 1)
            )
            self._write(_csv(map(_without_formulas, rows) if self._escape_formulas else rows))
        else:
            values = record(name, caption, words=self._words, wording=self._wording)
            self._write(to_json(values) + "\n")

    def _mark(self, caption: Caption) -> str:
        """A third column with a question mark, for an unsure caption."""
        return "\t?" if self._wording.marks(caption) else ""

    def _write(self, text: str) -> None:
        if self._file is sys.stdout and sys.stdout.isatty():  # a terminal obeys what a file only stores
            text = "\n".join(printable(line, limit=None) for line in text.split("\n"))
        self._file.write(text)
        self._file.flush()

    def close(self) -> None:
        close(self._file)


def record(name: str, caption: Caption, *, words: bool = False, wording: Wording | None = None) -> dict[str, Any]:
    """A caption as a JSON object."""
    wording = wording or Wording()
    values: dict[str, Any] = {"image": name, **_texts(caption, wording), **_scores(caption), "backend": caption.backend}
    if words:
        values["words"] = [_word(word) for word in caption.words]
        values["end"] = _word(caption.end) if caption.end else None
    if caption.alternatives:
        values["alternatives"] = [{**_texts(other, wording), **_scores(other)} for other in caption.alternatives]
    return values


def finished_names(path: Path, format: LineFormat, *, escape_formulas: bool = False) -> set[str]:
    """The images whose captions an earlier run wrote to this file. An incomplete last line is removed."""
    if not path.exists():
        return set()
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    text = complete.decode("utf-8", errors="surrogateescape")
    try:
        names = _names(text, format)
        if format == "csv" and escape_formulas:
            names = {name[1:] if name[:1] == "'" and _FORMULA.match(name) else name for name in names}
    except (RecursionError, csv.Error, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path}: cannot resume, because this is not a {format} file of `captioner caption` ({error}); "
            "choose another --output"
        ) from None
    if len(complete) < len(data):
        os.truncate(path, len(complete))
    return names


def close(file: TextIO) -> None:
    """Close a file; standard output stays open."""
    if file is sys.stdout:
        file.flush()
    else:
        file.close()


def _names(text: str, format: LineFormat) -> set[str]:
    if format == "text":
        return {_unescape(line.split("\t")[0]) for line in text.split("\n") if "\t" in line}
    if format == "jsonl":
        return {str(json.loads(line)["image"]) for line in text.split("\n")[:-1]}
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    if rows and tuple(rows[0]) != COLUMNS:
        raise ValueError(f"its columns are {', '.join(rows[0])}")
    return {row[0] for row in rows[1:]}


def _texts(caption: Caption, wording: Wording) -> dict[str, str]:
    return {"caption": caption.text, "sentence": wording.sentence(caption)}


def _scores(caption: Caption) -> dict[str, float | None]:
    return {
        "confidence": None if caption.confidence is None else round(caption.confidence, 4),
        "score": round(caption.score, 6),
        "log_probability": round(caption.log_probability, 6),
    }


def _word(word: Word) -> dict[str, Any]:
    values: dict[str, Any] = {"text": word.text, "log_probability": round(word.log_probability, 6)}
    values |= {"gate": round(word.gate, 6), "entropy": round(word.entropy, 6)}
    return values | ({"cell": list(word.cell)} if word.cell else {})


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    """Rows that end with a line feed. Python quotes a carriage return only where it belongs to the end of a row."""
    table = io.StringIO(newline="")
    writer = csv.writer(table, lineterminator="\r\n")
    text = ""
    for row in rows:
        writer.writerow(row)
        text += table.getvalue().removesuffix("\r\n") + "\n"
        table.seek(0)
        table.truncate()
    return text


def _without_formulas(row: Sequence[Any]) -> list[Any]:
    """Cells that begin like a formula, or like one after an apostrophe, get an apostrophe more."""
    return [f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell for cell in row]


def _escape(name: str) -> str:
    """A name as one field of a line: \\t, \\n, \\\\, and \\uXXXX for other characters that readers may stumble over.

    Bytes that are not UTF-8 stay as they are: the file is read with errors="surrogateescape".
    """
    name = name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
    return re.sub(f"(?![\ud800-\udfff]){UNPRINTABLE.pattern}", lambda match: f"\\u{ord(match[0]):04x}", name)


def _unescape(name: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else {"t": "\t", "n": "\n"}.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-f]{4})|(.))", character, name)
