"""Flickr8k's own files: a token file (`picture.jpg#0<TAB>caption`) and lists of pictures for each split."""

from __future__ import annotations

import re
from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item, split_name
from captioner.data.formats.image_folder import find_image_folder
from captioner.data.formats.text_files import read_text
from captioner.errors import CaptionerError

TOKEN_LINE = re.compile(r"(?P<picture>[^\t]+)#\d+\t(?P<caption>.*)$")
_SPLIT_LIST = re.compile(r"(train|dev|val|test)_?images\.txt$", re.IGNORECASE)
UNLISTED = "unlisted"  # pictures with captions that no split list names


def read_flickr8k(
    path: Path,
    images: Path | None = None,
    *,
    name: str | None = None,
    images_setting: str | None = None,
) -> CaptionSet:
    """A token file with the split lists beside it; without lists every picture is in train."""
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        found = TOKEN_LINE.match(line)
        if not found:
            raise CaptionerError(f"{path}: line {number} is not `picture.jpg#0<TAB>caption`: {line[:80]!r}")
        captions.setdefault(found["picture"], []).append(found["caption"])
    lists = sorted(other for other in path.parent.iterdir() if _SPLIT_LIST.search(other.name))
    splits: dict[str, str] = {}
    empty = []
    for other in lists:
        match = _SPLIT_LIST.search(other.name)
        assert match
        of_list = split_name(match[1])
        pictures = [line.strip() for line in read_text(other).splitlines() if line.strip()]
        if not pictures:
            empty.append(of_list)
        for picture in pictures:
            if splits.setdefault(picture, of_list) != of_list:
                raise CaptionerError(f"{other}: {picture} is already in the split {splits[picture]!r}")
    default = UNLISTED if lists else "train"
    pictures = list(dict.fromkeys([*captions, *splits]))
    image_folder = find_image_folder(path, images, [(picture, "") for picture in pictures], images_setting)
    items = tuple(
        Item(picture, image_folder.find(picture), tuple(captions.get(picture, ())), splits.get(picture, default))
        for picture in pictures
    )
    return CaptionSet(name or path.name.split(".")[0], items, tuple(empty))
