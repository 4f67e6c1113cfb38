"""Tables of pictures: Parquet files with the bytes or the paths of pictures, lists of paths, metadata.jsonl."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Literal

from captioner.errors import CaptionerError, UsageError, brief
from captioner.images.inputs import PictureBytes
from captioner.scale.locations import inside, is_address
from captioner.scale.samples import (
    LARGEST,
    DamagedShard,
    Sample,
    StoredPicture,
    UnreadPicture,
    picture_bytes,
    too_large,
    unreadable,
)
from captioner.writers.parquet_writer import pyarrow_library

ROWS = 32  # of a Parquet file that are in memory as Python values

# Names that are tried where none is given, in this order.
PICTURE_COLUMNS = ("image", "bytes", "image_bytes", "content", "jpg", "jpeg", "png", "webp", "picture", "img", "data")
PATH_COLUMNS = ("path", "image_path", "file_path", "filepath", "file_name", "filename", "file", "uri", "url")
KEY_COLUMNS = ("key", "__key__", "id", "image_id", "uid", "file_name", "filename", "path", "image_path", "url")


@dataclass(frozen=True)
class Columns:
    """The columns of a Parquet file that hold the pictures and their keys; None is detected."""

    image: str | None = None
    key: str | None = None


def read_parquet(file: IO[bytes], name: str, folder: str, columns: Columns) -> Iterator[Sample]:
    """One sample per row. The rows of a row group that is damaged give errors; DamagedShard comes at the end."""
    table = _open_table(file, name)
    schema = table.schema_arrow
    image = _image_column(schema, columns.image, name)
    key = _column(schema, columns.key, KEY_COLUMNS, name, "--key-column")
    needed = list(dict.fromkeys(filter(None, (image, key))))
    number, end, damaged = 0, 0, 0
    for group in range(table.num_row_groups):
        end += table.metadata.row_group(group).num_rows
        try:
            for batch in table.iter_batches(ROWS, row_groups=[group], columns=needed):
                for row in batch.to_pylist():
                    own = row[key] if key is not None and row[key] is not None else _numbered(name, number)
                    yield Sample(str(own), cell_picture(str(own), row[image], folder))
                    number += 1
        except Exception as error:
            if is_address(name):  # rather the store or the network: the shard can be read another time
                raise CaptionerError(f"{name}: cannot be read ({type(error).__name__}: {error})") from error
            damaged += end - number
        for row_number in range(number, end):
            own = _numbered(name, row_number)
            yield Sample(own, unreadable(own, "this part of the shard is damaged"))
        number = end
    if damaged:
        raise DamagedShard(f"{name}: {damaged:,} of {number:,} rows are damaged")


def has_paths(file: IO[bytes], name: str, columns: Columns) -> bool:
    """Whether a Parquet file has the paths or addresses of pictures only, and not their bytes."""
    schema = _open_table(file, name).schema_arrow
    return _kind_of_cells(schema.field(_image_column(schema, columns.image, name)).type) == "path"


def _open_table(file: IO[bytes], name: str) -> Any:
    try:
        table = pyarrow_library().ParquetFile(file)
        table.schema_arrow  # noqa: B018 (a damaged schema is found here)
    except UsageError:  # pyarrow is missing
        raise
    except Exception as error:  # pyarrow has several; in a damaged file also OSError
        raise CaptionerError(f"{name}: not a Parquet file that can be read ({error})") from None
    return table


def read_list(file: IO[bytes], root: str, lines: int | None) -> Iterator[Sample]:
    """One sample per line that is not empty. Paths are relative to `root`, the folder of the command."""
    for line in _lines(file, lines):
        if path := os.fsdecode(line):
            yield Sample(path, _picture_at(path, path if is_address(path) else os.path.join(root, path)))  # noqa: PTH118


def read_metadata(file: IO[bytes], folder: str, before: int, lines: int | None) -> Iterator[Sample]:
    """One sample per line of a metadata.jsonl. Its file_name is relative to the folder and stays inside it."""
    for number, line in enumerate(_lines(file, lines), before + 1):
        if not line.strip():
            continue
        place = f"line {number:,}"
        try:
            values = json.loads(line)
            path = values["file_name"]
            if not isinstance(path, str):
                raise TypeError
        except (ValueError, RecursionError):
            yield Sample(place, unreadable(place, "not valid JSON"))
        except (KeyError, TypeError):
            yield Sample(place, unreadable(place, "there is no file_name"))
        else:
            yield Sample(path, _beside(path, path, folder))


def _lines(file: IO[bytes], lines: int | None) -> Iterator[bytes]:
    for number, line in enumerate(file):
        if number == lines:
            return
        yield line.rstrip(b"\r\n")


def _numbered(name: str, row: int) -> str:
    return f"{PurePosixPath(name).stem}-{row:09d}"


def cell_picture(key: str, cell: Any, folder: str) -> str | PictureBytes | UnreadPicture:
    """The picture of a table's cell: bytes, a path, or Hugging Face's struct of both."""
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, bytes):
        return too_large(key, len(cell)) if len(cell) > LARGEST else picture_bytes(key, cell)
    if not isinstance(cell, str):
        return unreadable(key, "the row has no picture" if cell is None else f"not a picture: {brief(cell)}")
    if is_address(cell) or os.path.isabs(cell):  # noqa: PTH117
        return _picture_at(key, cell)
    return _beside(key, cell, folder)


def _beside(key: str, path: str, folder: str) -> str | UnreadPicture:
    if is_address(path) or os.path.isabs(path) or ".." in PurePosixPath(path).parts:  # noqa: PTH117
        return unreadable(key, "its file is not inside the folder of the shard")
    return _picture_at(key, inside(folder, path))


def _picture_at(key: str, location: str) -> str | UnreadPicture:
    return StoredPicture(key, location) if is_address(location) else location


def _image_column(schema: Any, given: str | None, name: str) -> str:
    kinds = {field.name: _kind_of_cells(field.type) for field in schema}
    known = tuple(column for column in (*PICTURE_COLUMNS, *PATH_COLUMNS) if kinds.get(column))
    column = _column(schema, given, known, name, "--image-column")
    if column is not None:
        if not kinds[column]:
            found = str(schema.field(column).type)[:100]
            raise UsageError(f"{name}: --image-column {column}: neither bytes nor paths of pictures, but {found}")
        return column
    for column, kind in kinds.items():
        if kind == "bytes":
            return str(column)
    raise UsageError(
        f"{name}: no column of pictures or paths was recognised; name it with --image-column. "
        f"Columns: {', '.join(schema.names)}."
    )


def _kind_of_cells(kind: Any) -> Literal["bytes", "path", "struct"] | None:
    """What the cells of a column of this type may hold. None: no pictures."""
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)  # of an extension type
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "bytes"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "path"
    return "struct" if types.is_struct(kind) else None


def _column(schema: Any, given: str | None, known: tuple[str, ...], name: str, option: str) -> str | None:
    if given is None:
        return next((column for column in known if column in schema.names), None)
    if given not in schema.names:
        raise UsageError(f"{name}: {option} {given}: there is no such column. Columns: {', '.join(schema.names)}.")
    return given
