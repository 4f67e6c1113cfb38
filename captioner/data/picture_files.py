"""Looking at a set's picture files: which are missing, which can't be read, which are the same."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import CaptionerError
from captioner.images.decoding import inspect
from captioner.images.reading import read


@dataclass(frozen=True)
class PictureFindings:
    """What was found; `same` groups files of equal content."""

    missing: tuple[Path, ...]
    unreadable: tuple[tuple[Path, str], ...]  # and why
    same: tuple[tuple[Path, ...], ...]
    bytes: int
    decoded: bool  # every pixel, or the headers alone


def inspect_pictures(
    paths: Iterable[Path],
    *,
    decode: bool = False,
    threads: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> PictureFindings:
    """Opens every file once. By default the header is parsed; with `decode` every pixel is."""
    listed = list(dict.fromkeys(paths))
    sizes: dict[Path, int] = {}
    missing = []
    for path in listed:
        try:
            sizes[path] = os.stat(path).st_size  # noqa: PTH116 (a hundred thousand of them)
        except OSError:
            missing.append(path)
    there = list(sizes)
    by_size: dict[int, int] = defaultdict(int)
    for size in sizes.values():
        by_size[size] += 1

    def examine(path: Path) -> tuple[str | None, str | None]:
        # Only files of equal length can be equal: the others need no reading beyond what Pillow wants.
        return _problem(path, decode), _digest(path) if by_size[sizes[path]] > 1 and sizes[path] else None

    unreadable, groups = [], defaultdict(list)
    with ThreadPoolExecutor(threads or min(8, (os.cpu_count() or 1) * 2)) as pool:
        for done, (path, (problem, digest)) in enumerate(
            zip(there, pool.map(examine, there, chunksize=1), strict=True), 1
        ):
            if problem is not None:
                unreadable.append((path, problem))
            if digest is not None:
                groups[digest].append(path)
            progress(done, len(there))
    same = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    return PictureFindings(tuple(missing), tuple(unreadable), same, sum(sizes.values()), decode)


def _problem(path: Path, decode: bool) -> str | None:
    """Why captioning and training could not read this file; None if they can."""
    try:
        if decode:
            read(path)
        else:
            inspect(path)
    except CaptionerError as error:
        return str(error).removeprefix(f"{path}: ")
    return None


def _digest(path: Path) -> str | None:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return None
