"""A folder of pictures, each with a .txt of the same name beside it: a caption a line."""

from __future__ import annotations

import os
from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item, split_name
from captioner.data.formats.text_files import read_text
from captioner.errors import CaptionerError
from captioner.images.reading import SUFFIXES

_SPLITS = ("train", "val", "test", "restval")


def read_folder(path: Path, *, name: str | None = None) -> CaptionSet:
    """Every picture below the folder; sub-folders named train, val, test (or dev, …) are its splits."""
    default = "train"
    items: list[Item] = []
    texts: list[Path] = []
    used: set[Path] = set()
    by_split = {entry.name: split_name(entry.name) for entry in sorted(path.iterdir()) if entry.is_dir()}
    by_split = {folder: of for folder, of in by_split.items() if of in _SPLITS}
    for directory, folders, files in os.walk(path):
        folders.sort()
        here = Path(directory)
        parts = here.relative_to(path).parts
        of_split = by_split.get(parts[0], default) if parts else default
        texts += [here / file for file in files if file.lower().endswith(".txt")]
        for file in sorted(files):
            picture = here / file
            if picture.suffix.lower() not in SUFFIXES:
                continue
            beside = picture.with_suffix(".txt")
            lines: list[str] = []
            if beside.name in files:
                used.add(beside)
                # An empty line between captions is layout; a file with nothing in it is no caption.
                lines = [line.strip() for line in read_text(beside).splitlines() if line.strip()]
            items.append(Item(picture.relative_to(path).as_posix(), picture, tuple(lines), of_split))
    if not items:
        raise CaptionerError(f"{path}: no pictures in this folder (looked for {', '.join(SUFFIXES)})")
    held = {item.split for item in items}
    empty = [of for of in by_split.values() if of not in held]
    stray = sorted(text for text in texts if text not in used)
    notes = (f"{path}: {len(stray):,} .txt files have no picture beside them (first: {stray[0]})",) if stray else ()
    return CaptionSet(name or path.resolve().name, tuple(items), tuple(empty), notes)
