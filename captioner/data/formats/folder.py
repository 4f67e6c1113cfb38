"""A folder of pictures, each with a .txt file of the same name next to it: one caption per line."""

from __future__ import annotations

from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item, split_name
from captioner.data.formats.text_files import read_text
from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.images.decoding import SUFFIXES

_SPLITS = ("train", "val", "test", "restval")


def read_folder(path: Path, *, name: str | None = None) -> CaptionSet:
    """Read every picture below the folder. Sub-folders named train, val, test (or dev, …) are the splits."""
    default = "train"
    items: list[Item] = []
    texts: list[Path] = []
    used: set[Path] = set()
    directories = list(zip_paths.walk(path))
    top_folders = sorted({directory.relative_to(path).parts[0] for directory, _ in directories if directory != path})
    split_folders = {folder: split_name(folder) for folder in top_folders if split_name(folder) in _SPLITS}
    for current, files in directories:
        parts = current.relative_to(path).parts
        split = split_folders.get(parts[0], default) if parts else default
        texts += [current / file for file in files if file.lower().endswith(".txt")]
        for file in files:
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
