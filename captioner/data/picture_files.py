"""Looking at a set's picture files: which are missing, which can't be read, which are the same."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from captioner.errors import CaptionerError
from captioner.images import reading as images


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

    def inspect(path: Path) -> tuple[str | None, str | None]:
        # Only files of equal length can be equal: the others need no reading beyond what Pillow wants.
        return _problem(path, decode), _digest(path) if by_size[sizes[path]] > 1 and sizes[path] else None

    Image.MAX_IMAGE_PIXELS = None  # our own limit is the one that counts
    unreadable, groups = [], defaultdict(list)
    with ThreadPoolExecutor(threads or min(8, (os.cpu_count() or 1) * 2)) as pool:
        for done, (path, (problem, digest)) in enumerate(
            zip(there, pool.map(inspect, there, chunksize=1), strict=True), 1
        ):
            if problem is not None:
                unreadable.append((path, problem))
            if digest is not None:
                groups[digest].append(path)
            progress(done, len(there))
    same = tuple(tuple(group) for group in groups.values() if len(group) > 1)
    return PictureFindings(tuple(missing), tuple(unreadable), same, sum(sizes.values()), decode)


def _problem(path: Path, decode: bool) -> str | None:
    try:
        if decode:
            images.read(path)
            return None
        if path.stat().st_size == 0:
            return "the file is empty"
        with Image.open(path) as image:
            width, height = image.size
            if width * height > images.PIXEL_LIMIT:
                return f"{width}x{height} is more than the limit of {images.PIXEL_LIMIT:,} pixels"
    except CaptionerError as error:
        return str(error).removeprefix(f"{path}: ")
    except Exception as error:  # Pillow's parsers raise nearly anything on broken data
        return f"not a picture that can be read ({type(error).__name__})"
    return None


def _digest(path: Path) -> str | None:
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return None
