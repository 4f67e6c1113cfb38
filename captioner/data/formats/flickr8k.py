"""Flickr8k's own files: a token file (`picture.jpg#0<TAB>caption`) and one list of pictures per split."""

from __future__ import annotations

import re
from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item, split_name
from captioner.data.formats.image_folder import find_image_folder
from captioner.data.formats.text_files import read_text
from captioner.errors import CaptionerError
from captioner.files import zip_paths

TOKEN_LINE = re.compile(r"(?P<picture>[^\t]+)#\d+\t(?P<caption>.*)$")
_SPLIT_LIST = re.compile(r"(train|dev|val|test)_?images\.txt$", re.IGNORECASE)
UNLISTED = "unlisted"  # the split of pictures that are in no list


def read_flickr8k(
    path: Path,
    images: Path | None = None,
    *,
    name: str | None = None,
    images_setting: str | None = None,
) -> CaptionSet:
    """Read a token file and the split lists next to it. Without lists, every picture is in train."""
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        match = TOKEN_LINE.match(line)
        if not match:
            raise CaptionerError(f"{path}: line {number} is not `picture.jpg#0<TAB>caption`: {line[:80]!r}")
        captions.setdefault(match["picture"], []).append(match["caption"])
    lists = sorted(file for file in zip_paths.glob(path.parent, "*") if _SPLIT_LIST.search(file.name))
    splits: dict[str, str] = {}
    empty = []
    for list_file in lists:
        match = _SPLIT_LIST.search(list_file.name)
        assert match
        split = split_name(match[1])
        pictures = [line.strip() for line in read_text(list_file).splitlines() if line.strip()]
        if not pictures:
            empty.append(split)
        for picture in pictures:
            if splits.setdefault(picture, split) != split:
                raise CaptionerError(f"{list_file}: {picture} is already in the split {splits[picture]!r}")
    default = UNLISTED if lists else "train"
    pictures = list(dict.fromkeys([*captions, *splits]))
    image_folder = find_image_folder(path, images, [(picture, "") for picture in pictures], images_setting)
    items = tuple(
        Item(picture, image_folder.find(picture), tuple(captions.get(picture, ())), splits.get(picture, default))
        for picture in pictures
    )
    return CaptionSet(name or path.name.split(".")[0], items, tuple(empty))
