"""Inspect the picture files of a set: which are missing, unreadable or equal."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.images.decoding import inspect
from captioner.images.reading import read_image

_PNG_END = b"\0\0\0\0IEND\xae\x42\x60\x82"


@dataclass(frozen=True)
class PictureFindings:
    """The findings. `same` has one group of files for each content that occurs more than once."""

    missing: tuple[Path, ...]
    unreadable: tuple[tuple[Path, str], ...]  # with the reason
    same: tuple[tuple[Path, ...], ...]
    bytes: int
    decoded: bool  # whether every pixel of every picture was decoded


def inspect_pictures(
    paths: Iterable[Path],
    *,
    decode: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PictureFindings:
    """Open every file. With `decode`, every pixel is decoded.

    By default the header is read, and a file is decoded only where its end does not show that it is whole.
    """
    sizes: dict[Path, int] = {}
    missing = []
    for path in dict.fromkeys(paths):
        try:
            sizes[path] = zip_paths.size_of(path)
        except (OSError, ValueError):  # a name with a NUL
            missing.append(path)
    existing = list(sizes)
    by_size: dict[int, int] = defaultdict(int)
    for size in sizes.values():
        by_size[size] += 1

    def examine(path: Path) -> tuple[str | None, str | None]:
        # Only files of equal size can have equal content, so only they are read completely.
        return _problem(path, decode), _digest(path) if by_size[sizes[path]] > 1 and sizes[path] else None

    unreadable, groups = [], defaultdict(list)
    with ThreadPoolExecutor(threads or min(8, (os.cpu_count() or 1) * 2)) as pool:
        for done, (path, (problem, digest)) in enumerate(
            zip(existing, pool.map(examine, existing, chunksize=1), strict=True), 1
        ):
            if problem is not None:
                unreadable.append((path, problem))
            if digest is not None:
                groups[digest].append(path)
            progress(done, len(existing))
    same = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    return PictureFindings(tuple(missing), tuple(unreadable), same, sum(sizes.values()), decode)


def same_pictures(paths: Sequence[Path]) -> list[str]:
    """A name for each picture: that of its file and folder, or one that files with the same content share."""
    sizes = [_size(path) for path in paths]
    counts = Counter(size for size in sizes if size)
    names = []
    for path, size in zip(paths, sizes, strict=True):
        # Only files of equal size can have equal content, so only they are read.
        digest = _digest(path) if size and counts[size] > 1 else None
        names.append(digest or f"{path.parent.name}/{path.name}")
    return names


def _size(path: Path) -> int:
    try:
        return zip_paths.size_of(path)
    except OSError:
        return 0


def _problem(path: Path, decode: bool) -> str | None:
    """Why captioning and training could not read this file; None if they can."""
    try:
        if not decode:
            inspect(path)
        if decode or not _is_whole(path):
            read_image(path, min_side=512)  # as in training: a large JPEG is decoded at a part of its size
    except CaptionerError as error:
        return str(error).removeprefix(f"{path}: ")
    return None


def _is_whole(path: Path) -> bool:
    """Whether the end of the file shows that nothing is cut off. False where only decoding can tell."""
    try:
        with zip_paths.open_binary(path) as file:
            start = file.read(16)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_PNG_END)))
            end = file.read()
            if start.startswith(b"\xff\xd8\xff"):  # JPEG
                return end.endswith(b"\xff\xd9")
            if start.startswith(b"\x89PNG"):
                return end == _PNG_END
            if start.startswith(b"RIFF"):  # WebP
                return int.from_bytes(start[4:8], "little") + 8 <= size
            return start[4:8] == b"ftyp" and _boxes_are_whole(file, size)  # HEIC, AVIF
    except (OSError, CaptionerError):
        return False


def _boxes_are_whole(file: IO[bytes], size: int) -> bool:
    """Whether the top boxes of a HEIC or AVIF file fill it exactly."""
    position = 0
    while position < size:
        file.seek(position)
        header = file.read(16)
        length = int.from_bytes(header[:4], "big")
        if length == 1:
            length = int.from_bytes(header[8:16], "big")
        if length < 8:
            return False
        position += length
    return position == size


def _digest(path: Path) -> str | None:
    try:
        with zip_paths.open_binary(path) as file:
            return hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except (OSError, CaptionerError):
        return None
