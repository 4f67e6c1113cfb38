"""A folder of pictures, each with a .txt file of the same name next to it: one caption per line."""

from __future__ import annotations

import os
from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item, split_name
from captioner.data.formats.text_files import read_text
from captioner.errors import CaptionerError
from captioner.images.decoding import SUFFIXES

_SPLITS = ("train", "val", "test", "restval")


def read_folder(path: Path, *, name: str | None = None) -> CaptionSet:
    """Read every picture below the folder. Sub-folders named train, val, test (or dev, …) are the splits."""
    default = "train"
    items: list[Item] = []
    texts: list[Path] = []
    used: set[Path] = set()
    split_folders = {entry.name: split_name(entry.name) for entry in sorted(path.iterdir()) if entry.is_dir()}
    split_folders = {folder: split for folder, split in split_folders.items() if split in _SPLITS}
    for directory, folders, files in os.walk(path):
        folders.sort()
        current = Path(directory)
        parts = current.relative_to(path).parts
        split = split_folders.get(parts[0], default) if parts else default
        texts += [current / file for file in files if file.lower().endswith(".txt")]
        for file in sorted(files):
            picture = current / file
            if picture.suffix.lower() not in SUFFIXES:
                continue
            text_file = picture.with_suffix(".txt")
            captions: list[str] = []
            if text_file.name in files:
                used.add(text_file)
                # Empty lines are layout, not empty captions.
                captions = [line.strip() for line in read_text(text_file).splitlines() if line.strip()]
            items.append(Item(picture.relative_to(path).as_posix(), picture, tuple(captions), split))
    if not items:
        raise CaptionerError(f"{path}: no pictures in this folder (looked for {', '.join(SUFFIXES)})")
    splits = {item.split for item in items}
    empty = [split for split in split_folders.values() if split not in splits]
    unused = sorted(text for text in texts if text not in used)
    notes = (f"{path}: {len(unused):,} .txt files have no picture (first: {unused[0]})",) if unused else ()
    return CaptionSet(name or path.resolve().name, tuple(items), tuple(empty), notes)
