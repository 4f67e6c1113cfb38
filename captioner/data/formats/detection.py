"""read_set: detect the format of a caption file or folder and read it as one CaptionSet."""

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
from captioner.data.formats.text_files import is_utf16, missing, read_json, read_start
from captioner.errors import CaptionerError, unknown
from captioner.files import zip_paths

FORMATS = ("coco", "karpathy", "flickr8k", "table", "folder")

# Caption files that a folder may contain, in the order of the search.
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
    """Read a caption file or folder.

    Without `format`, the content decides. With `split`, only that split is read: a COCO file without a split in its
    name is then that split. Any other source without splits is train. With `restval`, Karpathy's split of that name
    counts as train. `setting` and `images_setting` are the options or config keys of the paths, for error messages.
    """
    if format is not None and format not in FORMATS:
        raise unknown("data format", format, FORMATS)
    captions = Path(captions)
    images = Path(images) if images is not None else None
    if not captions.exists() and not zip_paths.is_file(captions) and not zip_paths.is_folder(captions):
        raise missing(captions, setting, "caption file or folder")
    if zip_paths.is_folder(captions):
        files = [] if format == "folder" else _files_in(captions, format)
        if not files:
            if format not in (None, "folder"):
                raise CaptionerError(f"{captions}: no file of the format {format!r} in this folder")
            whole = read_folder(captions, name=name)
            return whole if split is None else whole.split(split)
        # A .json that is named like a table may be a COCO or Karpathy file: its content decides.
        kinds = [None if format is None and file.suffix.lower() == ".json" else kind for kind, file in files]
        parts = [
            _read_file(file, images, kind, split, None, images_setting)
            for kind, (_, file) in zip(kinds, files, strict=True)
        ]
        whole = combine(parts, name=name or captions.resolve().name)
    else:
        whole = _read_file(captions, images, format, split, name, images_setting)
    if restval:
        whole = whole.rename_split("restval", "train")
    return whole if split is None else whole.split(split)


def _files_in(folder: Path, format: str | None) -> list[tuple[str, Path]]:
    """The caption files of a folder with their format, all of one format. Empty for a folder of pictures and texts."""
    by_format = {}
    for kind, patterns in _IN_FOLDER:
        for pattern in patterns:
            files = zip_paths.glob(folder, pattern)
            if kind == "table":
                files = [file for file in files if _looks_like_table(file)]
            if files and format in (None, kind):
                by_format[kind] = files
                break
    if len(by_format) > 1 and "table" in by_format:
        del by_format["table"]
    if len(by_format) > 1:
        names = ", ".join(file.name for files in by_format.values() for file in files)
        raise CaptionerError(
            f"{folder}: contains caption files of several formats ({names}); give the path of one of them"
        )
    return [(kind, file) for kind, files in by_format.items() for file in files]


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
    try:
        return _read_as(path, images, format, split, name, images_setting)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        # The readers check what people get wrong. This is for files that are not caption files at all.
        kind = format or "caption"
        raise CaptionerError(f"{path}: not a {kind} file that can be read ({type(error).__name__}: {error})") from error


def _read_as(
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
    raise CaptionerError(f"{path}: the format `folder` needs a folder, but this is a file")


def _detect(path: Path) -> tuple[str, Any]:
    """The format of a file, and its content if the detection had to parse it."""
    start = read_start(path)
    if not start:
        raise CaptionerError(f"{path}: the file is empty")
    if is_utf16(path):
        raise CaptionerError(f"{path}: the text is in UTF-16; save the file as UTF-8 and try again")
    if "\0" in start:
        raise CaptionerError(
            f"{path}: not a caption file but a binary one, such as a picture; give the folder of the pictures, or the "
            "file of their captions"
        )
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
            f"{path}: neither a COCO captions file (`images` and `annotations`) nor a Karpathy file (`images` with "
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
    """Whether a line is a complete JSON object with an image, as in a JSON lines file."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and any(key in record for key in IMAGE)
