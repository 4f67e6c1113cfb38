"""Find the pictures of a caption file by name in a folder, without one system call per picture."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from captioner.data.formats.text_files import missing
from captioner.files import zip_paths

# Folders next to a caption file that may contain its pictures, as in the published data sets.
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
_SAMPLE = 50  # number of names that are tried in a folder


class ImageFolder:
    """A folder of pictures. Each directory and zip file in it is listed once; lookups use the lists in memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._listed: dict[str, frozenset[str]] = {}

    def find(self, name: str, folder: str = "") -> Path:
        """The path of a picture; if there is no such file, the path where it was expected."""
        for directory, file in self._candidates(name, folder):
            if self._holds(directory, file):
                return self.root / directory / file
        return self.root / folder / name

    def holds(self, name: str, folder: str = "") -> bool:
        """Whether `find` finds a file."""
        return any(self._holds(directory, file) for directory, file in self._candidates(name, folder))

    def _candidates(self, name: str, folder: str) -> Sequence[tuple[str, str]]:
        inner, _, base = name.rpartition("/")
        joined = f"{folder}/{inner}".strip("/") if inner else folder
        candidates = [(joined, base), (inner, base)]
        renamed = _COCO_2014.search(base)
        if renamed:
            candidates += [(joined, renamed[1]), (inner, renamed[1])]
        if not inner:  # a name without folder may be one folder down: train2017/, val2017/
            candidates += [(sub, file) for _, file in tuple(candidates[::2]) for sub in self._folders()]
        return candidates

    def _holds(self, directory: str, file: str) -> bool:
        return file in self._names(directory)

    def _names(self, directory: str) -> frozenset[str]:
        names = self._listed.get(directory)
        if names is None:
            names = self._listed[directory] = self._list(directory)
        return names

    def _list(self, directory: str) -> frozenset[str]:
        folder = self.root / directory
        if zip_paths.is_folder(folder) and not folder.is_dir():
            return frozenset(path.name for path in zip_paths.glob(folder, "*"))
        try:
            return frozenset(os.listdir(folder))  # noqa: PTH208 (faster, only names are needed)
        except (OSError, ValueError):  # a name with a NUL
            return frozenset()

    def _folders(self) -> tuple[str, ...]:
        """The folders inside the root, and those inside its archives."""
        if not hasattr(self, "_inner"):
            self._inner = tuple(_inner_folders(self.root))
        return self._inner


def _inner_folders(root: Path) -> Iterator[str]:
    if zip_paths.is_archive(root):
        yield from sorted(folder for folder in zip_paths.folders_of(root) if folder)
        return
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            yield entry.name
        elif zip_paths.is_archive(entry):
            yield from (f"{entry.name}/{folder}".rstrip("/") for folder in sorted(zip_paths.folders_of(entry)))


def find_image_folder(
    captions: Path, images: Path | None, names: Sequence[tuple[str, str]], setting: str | None = None
) -> ImageFolder:
    """The given folder, or the folder next to the caption file that contains its first pictures.

    `names` are pairs (file name, folder hint) from the caption file.
    """
    if images is not None:
        if not zip_paths.is_folder(images):
            raise missing(images, setting, "folder of images")
        return ImageFolder(images)
    beside = captions if zip_paths.is_folder(captions) else captions.parent
    fallback = None
    for relative in _BESIDE:
        root = Path(os.path.normpath(beside / relative))
        if not zip_paths.is_folder(root):
            continue
        candidate = ImageFolder(root)
        fallback = fallback or candidate
        if any(candidate.holds(name, hint) for name, hint in names[:_SAMPLE]):
            return candidate
    return fallback or ImageFolder(beside)
