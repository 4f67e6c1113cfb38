"""What `captioner data download` was asked for, and what all its sets have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.data.caption_set import split_name
from captioner.data.cost import readable
from captioner.data.download.catalogue import PublishedFile
from captioner.data.download.http import check_url
from captioner.data.download.room import ArchiveRoom, archive_room, bytes_in, check_room, peak_bytes
from captioner.data.download.transfer import fetch
from captioner.errors import UsageError
from captioner.files.atomic import write_atomically
from captioner.files.existing import check_unoccupied


@dataclass(frozen=True)
class DownloadOptions:
    """What the options of `captioner data download` say."""

    splits: tuple[str, ...] = ()  # empty: all
    max_images: int | None = None  # per split
    karpathy: tuple[str, ...] | None = None  # files or addresses; empty: LAVIS's lists; None: COCO's own splits
    restval: bool = True
    base_url: str | None = None
    connections: int = 4
    keep: bool = False
    unpack: bool = True
    ignore_checksum: bool = False
    overwrite: bool = False
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        if self.base_url is not None:
            check_url(self.base_url, "--base-url")

    def place(self, pictures: PublishedFile, folder: Path) -> Path:
        """Folder of an archive of pictures: that of the pictures if it stays packed or is there already."""
        images = folder / "images"
        return images if not self.unpack or (images / pictures.name).is_file() else folder

    def fetch(self, file: PublishedFile, folder: Path, *, verify_existing: bool = True) -> Path:
        return fetch(
            file.url(self.base_url),
            folder / file.name,
            size=file.size,
            md5=file.md5,
            connections=self.connections,
            ignore_checksum=self.ignore_checksum,
            verify_existing=verify_existing,
        )

    def fetch_pictures(self, pictures: PublishedFile, folder: Path) -> Path:
        """An archive of pictures. The MD5 of one that stays packed is not compared in every call."""
        return self.fetch(pictures, self.place(pictures, folder), verify_existing=self.unpack)

    def pictures_room(self, pictures: PublishedFile, folder: Path, unpacked: Path) -> ArchiveRoom:
        """The room for an archive of pictures, which are unpacked into the folder `unpacked` or stay packed."""
        packed = self.place(pictures, folder) / pictures.name
        return archive_room(pictures, packed, bytes_in(unpacked) if self.unpack else None)

    def check_room(self, folder: Path, archives: Mapping[PublishedFile, ArchiveRoom]) -> None:
        """Refuse archives that the disk has no room for, and say how much is fetched."""
        needed = peak_bytes(archives.values(), keep=self.keep)
        names = ", ".join(file.name for file in archives)
        check_room(folder, needed, f"fetching {names}")
        remaining = sum(archive.remaining for archive in archives.values())
        if remaining:
            self.say(f"{names}: {readable(remaining)} to fetch, at most {readable(needed)} on disk")


def check_splits(wanted: Iterable[str], known: Iterable[str], name: str) -> None:
    """Refuse a split that the set does not have."""
    known = list(known)
    for split in wanted:
        if split_name(split) not in known:
            raise UsageError(f"--split: {name} has no split {split!r}; it has {', '.join(known)}")


def write_new(files: dict[Path, Any], options: DownloadOptions) -> None:
    """Write JSON files. One that exists with other content is kept, unless it is to be replaced."""
    texts = {path: json.dumps(content) + "\n" for path, content in files.items()}
    changed = {
        path: text for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }
    for path in changed:
        check_unoccupied(path, "--output", overwrite=options.overwrite)
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


def all_there(folder: Path, names: set[str]) -> bool:
    """Whether a folder contains all these files."""
    return folder.is_dir() and names <= {path.name for path in folder.iterdir()}
