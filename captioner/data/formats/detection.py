"""read_set: a caption file or folder of any known format becomes one CaptionSet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captioner.data.caption_set import CaptionSet, combine
from captioner.data.formats.coco import read_coco
from captioner.data.formats.flickr8k import TOKEN_LINE, read_flickr8k
from captioner.data.formats.folder import read_folder
from captioner.data.formats.karpathy import read_karpathy
from captioner.data.formats.table import IMAGE, delimiter_of, read_table
from captioner.data.formats.text_files import missing, read_json, read_start
from captioner.errors import CaptionerError, unknown

FORMATS = ("coco", "karpathy", "flickr8k", "table", "folder")

# What a folder may hold in place of captions beside its pictures, in the order looked for.
_IN_FOLDER = (
    ("coco", ("captions_*.json", "annotations/captions_*.json")),
    ("karpathy", ("dataset_*.json",)),
    ("flickr8k", ("*.token.txt", "*.token")),
    ("table", ("captions.*", "metadata.*", "*.csv", "*.tsv", "*.jsonl")),
)
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".json")


def read_set(
    captions: Path,
    images: Path | None = None,
    *,
    format: str | None = None,
    split: str | None = None,
    name: str | None = None,
    restval: bool = False,
    setting: str | None = None,
    images_setting: str | None = None,
) -> CaptionSet:
    """The set that a caption file, or a folder, holds.

    The format is told by the content unless given. With `split`, only that split is read. A COCO file
    whose name tells no split is then taken to be it; any other source that names no split is train.
    With `restval`, Karpathy's split of that name counts as train. `setting` and `images_setting` are
    the options or config keys the paths came from, for the error when there is nothing.
    """
    if format is not None and format not in FORMATS:
        raise unknown("data format", format, FORMATS)
    captions = Path(captions)
    images = Path(images) if images is not None else None
    if not captions.exists():
        raise missing(captions, setting, "caption file or folder")
    if captions.is_dir():
        files = [] if format == "folder" else _files_in(captions, format)
        if not files:
            if format not in (None, "folder"):
                raise CaptionerError(f"{captions}: no file of the format {format!r} in this folder")
            whole = read_folder(captions, name=name)
            return whole if split is None else whole.split(split)
        parts = [_read_file(file, images, of, split, None, images_setting) for of, file in files]
        whole = combine(parts, name=name or captions.resolve().name)
    else:
        whole = _read_file(captions, images, format, split, name, images_setting)
    if restval:
        whole = whole.rename_split("restval", "train")
    return whole if split is None else whole.split(split)


def _files_in(folder: Path, format: str | None) -> list[tuple[str, Path]]:
    """The caption files of a folder, all of one format; none where its pictures carry the captions."""
    found = {}
    for of, patterns in _IN_FOLDER:
        for pattern in patterns:
            files = [file for file in sorted(folder.glob(pattern)) if file.is_file()]
            if of == "table":
                files = [file for file in files if _looks_like_table(file)]
            if files and format in (None, of):
                found[of] = files
                break
    if len(found) > 1 and "table" in found:
        del found["table"]
    if len(found) > 1:
        names = ", ".join(file.name for files in found.values() for file in files)
        raise CaptionerError(f"{folder}: holds caption files of several formats ({names}): name one of them")
    return [(of, file) for of, files in found.items() for file in files]


def _looks_like_table(file: Path) -> bool:
    if file.suffix.lower() not in _TABLES:
        return False
    first = read_start(file)
    return first.startswith(("{", "[")) or delimiter_of(first.partition("\n")[0]) is not None


def _read_file(
    path: Path,
    images: Path | None,
    format: str | None,
    split: str | None,
    name: str | None,
    images_setting: str | None,
) -> CaptionSet:
    content: Any = None
    if format is None:
        format, content = _detect(path)
    if format == "coco":
        return read_coco(path, images, split=split, name=name, images_setting=images_setting, content=content)
    if format == "karpathy":
        return read_karpathy(path, images, name=name, images_setting=images_setting, content=content)
    if format == "flickr8k":
        return read_flickr8k(path, images, name=name, images_setting=images_setting)
    if format == "table":
        return read_table(path, images, name=name, images_setting=images_setting)
    raise CaptionerError(f"{path}: the format `folder` needs a folder, and this is a file")


def _detect(path: Path) -> tuple[str, Any]:
    """The format that a file's content shows, and the content where it had to be parsed for that."""
    start = read_start(path)
    if not start:
        raise CaptionerError(f"{path}: the file is empty")
    line = start.partition("\n")[0]
    if start.startswith("[") or _is_record(line):
        return "table", None
    if start.startswith("{"):
        content = read_json(path)
        pictures = content.get("images")
        if isinstance(content.get("annotations"), list):
            return "coco", content
        if isinstance(pictures, list) and (not pictures or "sentences" in pictures[0]):
            return "karpathy", content
        raise CaptionerError(
            f"{path}: neither COCO captions (`images` and `annotations`) nor Karpathy's (`images` with "
            f"`sentences`); its keys are {', '.join(list(content)[:8])}"
        )
    if TOKEN_LINE.match(line):
        return "flickr8k", None
    if delimiter_of(line) is not None:
        return "table", None
    raise CaptionerError(
        f"{path}: not a caption file of a known format ({', '.join(FORMATS)}); its first line is {line[:80]!r}"
    )


def _is_record(line: str) -> bool:
    """Whether a line is a whole JSON object that names an image: the first of a JSON-lines file."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and any(key in record for key in IMAGE)
