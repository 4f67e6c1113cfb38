"""Where the pictures of a caption file lie: finding them by name in a folder, without a stat for each."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from captioner.data.formats.text_files import missing

# Folders beside a caption file that hold its pictures, by the habits of the published sets.
_BESIDE = (
    "images",
    "Images",
    "Flicker8k_Dataset",
    "Flickr8k_Dataset",
    "flickr30k_images",
    ".",
    "../images",
    "..",
)
_COCO_2014 = re.compile(r"COCO_\w+?_(\d{12}\.jpg)$")  # COCO's 2017 release dropped the prefix
_SAMPLE = 50  # names looked up to tell which folder is the right one


class ImageFolder:
    """A folder of pictures; lists each folder once and answers from memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listed: dict[str, frozenset[str]] = {}

    def find(self, name: str, folder: str = "") -> Path:
        """The path of a picture; where it isn't found, the path where it was expected."""
        for directory, file in self._candidates(name, folder):
            if self._holds(directory, file):
                return self.root / directory / file
        return self.root / folder / name

    def holds(self, name: str, folder: str = "") -> bool:
        return any(self._holds(directory, file) for directory, file in self._candidates(name, folder))

    def _candidates(self, name: str, folder: str) -> Sequence[tuple[str, str]]:
        inner, _, base = name.rpartition("/")
        joined = f"{folder}/{inner}".strip("/") if inner else folder
        found = [(joined, base), (inner, base)]
        renamed = _COCO_2014.search(base)
        if renamed:
            found += [(joined, renamed[1]), (inner, renamed[1])]
        if not inner:  # a bare name may lie one folder down: train2017/, val2017/
            found += [(sub, file) for _, file in tuple(found[::2]) for sub in self._folders()]
        return found

    def _holds(self, directory: str, file: str) -> bool:
        return file in self._names(directory)

    def _names(self, directory: str) -> frozenset[str]:
        names = self._listed.get(directory)
        if names is None:
            try:
                names = frozenset(os.listdir(self.root / directory))  # noqa: PTH208 (names alone, fast)
            except OSError:
                names = frozenset()
            self._listed[directory] = names
        return names

    def _folders(self) -> tuple[str, ...]:
        if not hasattr(self, "_inner"):
            try:
                with os.scandir(self.root) as entries:
                    self._inner = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
            except OSError:
                self._inner = ()
        return self._inner


def find_image_folder(
    captions: Path, images: Path | None, names: Sequence[tuple[str, str]], setting: str | None = None
) -> ImageFolder:
    """The folder given, or the one beside the caption file that holds its first pictures.

    `names` are (file name, folder hint) of the pictures in the file.
    """
    if images is not None:
        if not images.is_dir():
            raise missing(images, setting, "folder of images")
        return ImageFolder(images)
    beside = captions if captions.is_dir() else captions.parent
    fallback = None
    for relative in _BESIDE:
        root = Path(os.path.normpath(beside / relative))
        if not root.is_dir():
            continue
        candidate = ImageFolder(root)
        fallback = fallback or candidate
        if any(candidate.holds(name, hint) for name, hint in names[:_SAMPLE]):
            return candidate
    return fallback or ImageFolder(beside)
