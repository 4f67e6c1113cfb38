"""Room on the disk, which is checked before anything is fetched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from captioner.data.cost import readable
from captioner.data.download.catalogue import PublishedFile
from captioner.data.download.http import DownloadError
from captioner.data.download.transfer_record import fetched_bytes

SPARE = 100_000_000  # bytes that stay free


@dataclass(frozen=True)
class ArchiveRoom:
    """Bytes of an archive, and what of it and of its content is not on the disk yet."""

    size: int
    remaining: int
    content: float | None  # None if it stays packed


def check_room(folder: Path, needed: int, purpose: str) -> None:
    """Refuse to begin what the disk has no room for."""
    if needed <= 0:
        return
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if needed + SPARE > free:
        raise DownloadError(
            f"{folder}: {purpose} needs {readable(needed)}, but the disk has {readable(free)} free; make room, or "
            "choose another disk with --output"
        )


def archive_room(file: PublishedFile, packed: Path, unpacked: int | None = 0) -> ArchiveRoom:
    """The room for an archive at `packed`, so many bytes of whose content are there; None if it stays packed."""
    size = file.size or file.estimate
    content = None if unpacked is None else max(0.0, size * file.unpacked - unpacked)
    return ArchiveRoom(size, max(0, size - fetched_bytes(packed)), content)


def peak_bytes(archives: Iterable[ArchiveRoom], *, keep: bool) -> int:
    """The most disk space that archives take when each is fetched, unpacked and removed before the next."""
    used = peak = 0.0
    for archive in archives:
        used += archive.remaining
        peak = max(peak, used + (archive.content or 0))
        if archive.content is not None:
            used += archive.content - (0 if keep else archive.size)
    return int(peak)


def bytes_in(folder: Path) -> int:
    """Bytes of the files in a folder, without its subfolders."""
    if not folder.is_dir():
        return 0
    with os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.is_file())
