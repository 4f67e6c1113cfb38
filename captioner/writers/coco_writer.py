"""Captions in COCO's results format: a JSON list of {image_id, caption}, which COCO's scorers read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from captioner.caption import Caption
from captioner.errors import UsageError
from captioner.text.json_text import to_json
from captioner.writers.lines import close


@dataclass(frozen=True)
class Begun:
    """The list that an earlier run wrote."""

    entries: tuple[dict[str, Any], ...] = ()
    end: int = 0  # bytes of the file up to the end of the last entry

    @property
    def has_numbers(self) -> bool:
        """Whether the earlier run numbered the images itself."""
        return any("file_name" in entry for entry in self.entries)


class CocoWriter:
    """Writes the list. A file is valid JSON after every caption."""

    def __init__(
        self, file: TextIO, image_ids: dict[str, int] | None, *, seekable: bool, begun: Begun | None = None
    ) -> None:
        """Without `image_ids` the images are numbered in order, and each entry has the file's name too.

        In a `seekable` file the end of the list is written after every caption, and the next caption overwrites it.
        """
        begun = begun or Begun()
        self.image_ids = None if begun.has_numbers else image_ids
        self._file, self._seekable = file, seekable
        self._next = 1 + max((entry["image_id"] for entry in begun.entries), default=0)
        self._end = begun.end
        self._empty = not begun.entries
        if seekable and self._empty:
            file.write("[]\n")
            file.flush()

    def write(self, name: str, caption: Caption) -> None:
        if self.image_ids is not None:
            entry: dict[str, Any] = {"image_id": self.image_ids[name], "caption": caption.text}
        else:
            entry = {"image_id": self._next, "caption": caption.text, "file_name": name}
            self._next += 1
        text = ("[\n" if self._empty else ",\n") + to_json(entry)
        if self._seekable:
            self._write_over_end(text)
        else:
            self._file.write(text)
            self._file.flush()
        self._empty = False

    def _write_over_end(self, text: str) -> None:
        try:
            self._file.seek(self._end)
            self._file.write(text)
            end = self._file.tell()
            self._file.write("\n]\n")
            self._file.truncate()
            self._file.flush()
        except OSError:  # a full disk: end the list after the last caption that had room
            descriptor = self._file.fileno()
            os.ftruncate(descriptor, self._end)
            os.lseek(descriptor, self._end, os.SEEK_SET)
            os.write(descriptor, b"[]\n" if self._empty else b"\n]\n")
            # Python still has the caption in its buffer and writes it when the file is closed: send it nowhere.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
            raise
        self._end = end

    def close(self) -> None:
        if not self._seekable:
            self._file.write("[]\n" if self._empty else "\n]\n")
        close(self._file)


def read_begun(path: Path) -> Begun:
    """The list that an earlier run wrote to this file; empty where there is none."""
    if not path.exists() or not path.stat().st_size:
        return Begun()
    data = path.read_bytes()
    try:
        entries = json.loads(data)
        if not all(isinstance(entry["image_id"], int) and isinstance(entry["caption"], str) for entry in entries):
            raise ValueError("an entry is not an image_id and a caption")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{path}: cannot resume, because this is not a list of COCO results ({error}); choose another --output"
        ) from None
    return Begun(tuple(entries), len(data[: data.rindex(b"]")].rstrip()) if entries else 0)


def finished_names(begun: Begun, image_ids: dict[str, int] | None) -> set[str]:
    """The images that the list has a caption for."""
    if image_ids is None or begun.has_numbers:
        return {entry["file_name"] for entry in begun.entries if "file_name" in entry}
    numbers = {entry["image_id"] for entry in begun.entries}
    return {name for name, number in image_ids.items() if number in numbers}


def image_ids_from_names(names: Iterable[str]) -> dict[str, int] | None:
    """The last number in each file's name. None unless all names have one and no two have the same."""
    image_ids = {}
    for name in names:
        numbers = re.findall(r"\d+", Path(name).stem)
        if not numbers:
            return None
        image_ids[name] = int(numbers[-1])
    return image_ids if len(set(image_ids.values())) == len(image_ids) else None
