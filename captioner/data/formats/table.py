"""Tables with the columns image and caption: CSV, TSV, JSON lines, or a JSON list of records."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from captioner.data.caption_set import CaptionSet, Item, split_name, split_of_file
from captioner.data.formats.image_folder import find_image_folder
from captioner.data.formats.text_files import parse_json, read_text
from captioner.errors import CaptionerError

# Accepted column names. The documentation uses the first of each.
IMAGE = ("image", "image_name", "file_name", "filename", "image_path", "path")
CAPTION = ("caption", "captions", "comment", "text", "sentence")
SPLIT = ("split",)
_DELIMITERS = "\t,;|"


@dataclass
class _Entry:
    captions: list[str] = field(default_factory=list)
    split: str | None = None


def read_table(
    path: Path,
    images: Path | None = None,
    *,
    name: str | None = None,
    images_setting: str | None = None,
) -> CaptionSet:
    """Read the rows in order and group them by image. Ids are the image names of the table."""
    text = read_text(path)
    default = split_of_file(path) or "train"
    entries: dict[str, _Entry] = {}
    rows = _records(text, path) if text.lstrip()[:1] in ("{", "[") else _rows(text, path)
    for where, image, captions, row_split in rows:
        entry = entries.setdefault(image, _Entry())
        entry.captions += captions
        if row_split:
            row_split = split_name(row_split)
            if entry.split not in (None, row_split):
                raise CaptionerError(f"{where}: {image} is in the split {row_split!r} and in {entry.split!r}")
            entry.split = row_split
    image_folder = find_image_folder(path, images, [(image, "") for image in entries], images_setting)
    items = tuple(
        Item(
            image,
            Path(image) if Path(image).is_absolute() else image_folder.find(image),
            tuple(entry.captions),
            entry.split or default,
        )
        for image, entry in entries.items()
    )
    return CaptionSet(name or path.stem, items, () if items else (default,))


_Row = tuple[str, str, list[str], "str | None"]  # file and line, image, captions, split


def _rows(text: str, path: Path) -> Iterator[_Row]:
    header, _, _ = text.lstrip().partition("\n")
    delimiter = delimiter_of(header)
    if delimiter is None:
        raise CaptionerError(
            f"{path}: the first line must name the columns `image` and `caption` (optionally `split`), "
            f"separated by tabs or commas; it is {header[:80]!r}"
        )
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
    columns: list[str] | None = None
    try:
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if columns is None:
                columns = [cell.strip().lower() for cell in row]
                continue
            where = f"{path}: line {reader.line_num}"
            if len(row) != len(columns):
                hint = "; put captions that contain the delimiter in quotes" if len(row) > len(columns) else ""
                raise CaptionerError(f"{where} has {len(row)} columns where the header has {len(columns)}{hint}")
            record = dict(zip(columns, row, strict=True))
            yield where, *_fields(record, where)
    except csv.Error as error:
        raise CaptionerError(f"{path}: line {reader.line_num}: {error}") from None


def delimiter_of(header: str) -> str | None:
    """The delimiter of a header line with an image and a caption column; None for any other line."""
    for delimiter in _DELIMITERS:
        columns = [cell.strip().strip('"').lower() for cell in header.split(delimiter)]
        if any(column in IMAGE for column in columns) and any(column in CAPTION for column in columns):
            return delimiter
    return None


def _records(text: str, path: Path) -> Iterator[_Row]:
    if text.lstrip().startswith("["):
        for position, record in enumerate(parse_json(text, str(path))):
            where = f"{path}: record {position}"
            yield where, *_fields(record, where)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}: line {number}"
            yield where, *_fields(parse_json(line, str(path), line=number), where)


def _fields(record: Any, where: str) -> tuple[str, list[str], str | None]:
    if not isinstance(record, dict):
        raise CaptionerError(f"{where} is not an object with `image` and `caption`: {str(record)[:80]}")
    image = _value(record, IMAGE)
    if not isinstance(image, str) or not image.strip():
        raise CaptionerError(f"{where} names no image: expected the column `image`, found {', '.join(record)}")
    caption = _value(record, CAPTION)
    captions = list(caption) if isinstance(caption, list) else [caption]
    if not all(isinstance(text, str) for text in captions):
        raise CaptionerError(f"{where} has no text under `caption`: {caption!r:.80}")
    split = _value(record, SPLIT)
    return image.strip(), captions, str(split) if split else None


def _value(record: dict[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if name in record), None)
