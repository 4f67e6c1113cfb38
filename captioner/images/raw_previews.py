"""The preview inside a raw file: cameras store a JPEG of the photo beside the sensor's data."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from PIL import Image
from PIL.ContainerIO import ContainerIO
from PIL.TiffImagePlugin import ImageFileDirectory_v2

LEAST = 200  # pixels of the longer side; smaller ones are thumbnails of the camera's menu
_JPEG = b"\xff\xd8\xff"
_MOST = 100  # beginnings of a JPEG that are tried; chance ones occur in the sensor's data
_ORIENTATION = 0x0112


def open_preview(file: IO[bytes]) -> Image.Image | None:
    """The largest JPEG in the file that Pillow can decode, turned as the raw file says. None if there is none.

    The formats of the cameras differ, but all keep the preview as an ordinary JPEG, so it is found by its first bytes.
    """
    candidates = sorted(_candidates(file), key=lambda found: -found[0])
    for _, start, end in candidates:
        with suppress(Exception):  # sensor data that looks like a JPEG: Pillow raises nearly any exception
            probe = _jpeg(file, start, end)
            probe.draft("RGB", (64, 64))
            probe.load()
            preview = _jpeg(file, start, end)
            orientation = _container_orientation(file)
            if orientation is not None:
                preview.getexif()[_ORIENTATION] = orientation
            return preview
    return None


def _candidates(file: IO[bytes]) -> Iterator[tuple[int, int, int]]:
    """Pixels, start and end of every JPEG header in the file."""
    content = _content(file)
    try:
        start, end = content.find(_JPEG), len(content)
        for _ in range(_MOST):
            if start < 0:
                return
            with suppress(Exception):
                width, height = _jpeg(file, start, end).size
                if max(width, height) >= LEAST:
                    yield width * height, start, end
            start = content.find(_JPEG, start + 1)
    finally:
        if isinstance(content, mmap.mmap):
            content.close()


def _content(file: IO[bytes]) -> bytes | mmap.mmap:
    """The bytes of the file, mapped where that is possible: raw files are large."""
    try:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError, io.UnsupportedOperation):
        file.seek(0)
        return file.read()


def _jpeg(file: IO[bytes], start: int, end: int) -> Image.Image:
    return Image.open(ContainerIO(file, start, end - start), formats=("JPEG",))


def _container_orientation(file: IO[bytes]) -> int | None:
    """The orientation that the raw file itself has. None unless it is built like TIFF; then the preview has its own."""
    file.seek(0)
    header = file.read(8)
    magic = {b"II": b"II*\0", b"MM": b"MM\0*"}.get(header[:2])  # some cameras write another number after II
    if magic is None:
        return None
    try:
        directory = ImageFileDirectory_v2(magic + header[4:])
        file.seek(directory.next)
        directory.load(file)
    except Exception:  # damaged: Pillow raises nearly any exception
        return None
    value = directory.get(_ORIENTATION)
    return value if isinstance(value, int) else None
