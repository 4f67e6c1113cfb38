"""Captions as lines of text, JSON or CSV, as COCO results, and as sidecar files.

Every caption is written whole as it comes, so that a stop loses nothing; what a killed run left half-written
is cut off when the run goes on.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError, UsageError
from captioner.images.reading import is_picture

Format = Literal["text", "jsonl", "csv", "coco"]
COLUMNS = ("image", "rank", "caption", "score", "log_probability")


class Output(Protocol):
    """Somewhere captions go, one by one."""

    def write(self, name: str, caption: Caption) -> None: ...

    def close(self) -> None: ...


class Lines:
    """Text, JSON lines or CSV; an n-best list is a line each, but in JSON one line for all."""

    def __init__(self, file: TextIO, format: Format, *, words: bool = False, begun: bool = False) -> None:
        """`begun` says that the file already has its first lines; `words` adds each word's figures to JSON."""
        self.file, self.format, self.words = file, format, words
        if format == "csv" and not begun:
            file.write(_csv([COLUMNS]))
            file.flush()

    def write(self, name: str, caption: Caption) -> None:
        ranked = (caption, *caption.alternatives)
        if self.format == "text":
            self.file.write("".join(f"{_escape(name)}\t{each.text}\n" for each in ranked))
        elif self.format == "csv":
            rows = [(name, i + 1, each.text, *_figures(each).values()) for i, each in enumerate(ranked)]
            self.file.write(_csv(rows))
        else:
            self.file.write(json.dumps(record(name, caption, words=self.words), ensure_ascii=False) + "\n")
        self.file.flush()

    def close(self) -> None:
        _close(self.file)


class Coco:
    """COCO results: a JSON list of {image_id, caption}; a file is valid JSON after every caption."""

    def __init__(
        self, file: TextIO, ids: dict[str, int] | None, *, rewind: bool, begun: int = 0, next: int = 1
    ) -> None:
        """Without `ids` the images get running numbers from `next` on, with their names beside.

        `rewind` says that the end of the list is written after every caption, and written over by the next;
        `begun` is where the list of an earlier run ends, to be gone on with.
        """
        self.file, self.ids, self.rewind, self.next = file, ids, rewind, next
        self.end = begun
        self.empty = not begun
        if self.rewind and self.empty:
            file.write("[]\n")
            file.flush()

    def write(self, name: str, caption: Caption) -> None:
        if self.ids is not None:
            entry: dict[str, Any] = {"image_id": self.ids[name], "caption": caption.text}
        else:
            entry = {"image_id": self.next, "caption": caption.text, "file_name": name}
            self.next += 1
        text = ("[\n" if self.empty else ",\n") + json.dumps(entry, ensure_ascii=False)
        if not self.rewind:
            self.file.write(text)
            self.file.flush()
        else:
            self._rewrite(text)
        self.empty = False

    def _rewrite(self, text: str) -> None:
        try:
            self.file.seek(self.end)
            self.file.write(text)
            end = self.file.tell()
            self.file.write("\n]\n")
            self.file.truncate()
            self.file.flush()
        except OSError:  # a full disk: the list ends after the last caption that had room
            number = self.file.fileno()
            os.ftruncate(number, self.end)
            os.lseek(number, self.end, os.SEEK_SET)
            os.write(number, b"[]\n" if self.empty else b"\n]\n")
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, number)  # there goes what the file still holds of the caption when it is closed
            os.close(nowhere)
            raise
        self.end = end

    def close(self) -> None:
        if not self.rewind:
            self.file.write("[]\n" if self.empty else "\n]\n")
        _close(self.file)


class Sidecars:
    """photo.txt beside each photo.jpg; with an n-best list, a line each."""

    def __init__(self) -> None:
        self.written: dict[Path, str] = {}

    def write(self, name: str, caption: Caption) -> None:
        path = sidecar(name)
        if path in self.written:
            raise CaptionerError(f"{name}: its sidecar {path} is already that of {self.written[path]}")
        if is_picture(path):
            raise CaptionerError(f"{name}: its sidecar {path} is a picture, and is not written over")
        self.written[path] = name
        fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
        try:
            fresh.write_text("".join(f"{each.text}\n" for each in (caption, *caption.alternatives)), encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise CaptionerError(f"{path}: cannot be written ({error.strerror})") from None

    def close(self) -> None:
        pass


def _close(file: TextIO) -> None:
    if file is sys.stdout:
        file.flush()
    else:
        file.close()


def sidecar(name: str) -> Path:
    return Path(name).with_suffix(".txt")


def record(name: str, caption: Caption, *, words: bool = False) -> dict[str, Any]:
    """A caption as a JSON object."""
    values: dict[str, Any] = {"image": name, "caption": caption.text, **_figures(caption)}
    if words:
        values["words"] = [_word(word) for word in caption.words]
        values["end"] = _word(caption.end) if caption.end else None
    if caption.alternatives:
        values["alternatives"] = [{"caption": each.text, **_figures(each)} for each in caption.alternatives]
    return values


def _figures(caption: Caption) -> dict[str, float]:
    return {"score": round(caption.score, 6), "log_probability": round(caption.log_probability, 6)}


def _word(word: Word) -> dict[str, Any]:
    values: dict[str, Any] = {"text": word.text, "log_probability": round(word.log_probability, 6)}
    values |= {"gate": round(word.gate, 6), "entropy": round(word.entropy, 6)}
    return values | ({"cell": list(word.cell)} if word.cell else {})


def _csv(rows: Iterable[Sequence[Any]]) -> str:
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(rows)
    return table.getvalue()


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"t": "\t", "n": "\n"}.get(m[1], m[1]), name)


def finished(path: Path, format: Format) -> set[str]:
    """The images that an earlier run wrote to a text, JSON or CSV file; a half-written last line is cut off."""
    if not path.exists():
        return set()
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", errors="surrogateescape")
    try:
        if format == "text":
            names = {_unescape(line.split("\t")[0]) for line in lines.splitlines() if "\t" in line}
        elif format == "jsonl":
            names = {str(json.loads(line)["image"]) for line in lines.splitlines()}
        else:
            rows = list(csv.reader(io.StringIO(lines)))
            if rows and tuple(rows[0]) != COLUMNS:
                raise ValueError(f"its columns are {', '.join(rows[0])}")
            names = {row[0] for row in rows[1:]}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: cannot go on, for it is no {format} output of this command ({error})") from None
    if len(whole) < len(data):
        os.truncate(path, len(whole))
    return names


def finished_coco(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The entries of an earlier run's COCO results, and where in the file the last of them ends."""
    if not path.exists() or not path.stat().st_size:
        return [], 0
    data = path.read_bytes()
    try:
        entries = json.loads(data)
        if not all(isinstance(entry["image_id"], int) and isinstance(entry["caption"], str) for entry in entries):
            raise ValueError("an entry is not an image_id and a caption")
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: cannot go on, for it is no list of COCO results ({error})") from None
    return list(entries), len(data[: data.rindex(b"]")].rstrip()) if entries else 0


def image_ids(names: Iterable[str]) -> dict[str, int] | None:
    """The last number in each file's name, where all names have one and no two the same."""
    ids = {}
    for name in names:
        digits = re.findall(r"\d+", Path(name).stem)
        if not digits:
            return None
        ids[name] = int(digits[-1])
    return ids if len(set(ids.values())) == len(ids) else None


def open_output(
    path: Path | None, format: Format, names: Sequence[str] | None, *, words: bool = False, resume: bool = False
) -> tuple[Output, set[str]]:
    """An output and the images it already has. No path: standard output. `names` are all images, for COCO's ids."""
    ids = image_ids(names) if format == "coco" and names is not None else None
    if path is None:
        stdout = sys.stdout
        if isinstance(stdout, io.TextIOWrapper):  # a file name may hold bytes that are no text
            stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
        return (Coco(stdout, ids, rewind=False) if format == "coco" else Lines(stdout, format, words=words)), set()
    if is_picture(path):
        raise UsageError(f"{path} is a picture: no captions are written over it")
    entries, end = finished_coco(path) if resume and format == "coco" else ([], 0)
    done = finished(path, format) if resume and format != "coco" else set()
    begun = bool(end) or (resume and path.exists() and path.stat().st_size > 0)
    try:
        mode = "w" if not begun else "r+" if format == "coco" else "a"
        file: Any = path.open(mode, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None
    if format != "coco":
        return Lines(file, format, words=words, begun=begun), done
    if ids is None or any("file_name" in entry for entry in entries):
        done = {entry["file_name"] for entry in entries if "file_name" in entry}
        last = max((entry["image_id"] for entry in entries), default=0)
        return Coco(file, None, rewind=True, begun=end, next=last + 1), done
    there = {entry["image_id"] for entry in entries}
    return Coco(file, ids, rewind=True, begun=end), {name for name, number in ids.items() if number in there}
