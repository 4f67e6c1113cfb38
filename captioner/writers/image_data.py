"""The parts of a photo file that are not metadata, to prove that writing metadata does not change them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from io import BytesIO

from PIL import Image, ImageSequence

from captioner.errors import CaptionerError

_PNG_METADATA = {b"tEXt", b"zTXt", b"iTXt", b"eXIf"}
_WEBP_METADATA = {b"EXIF", b"XMP ", b"VP8X"}  # VP8X has flags that say which metadata there is


def image_data(data: bytes) -> list[tuple[bytes, str]]:
    """Name and checksum of every part of a JPEG, PNG, WebP or TIFF file that is not EXIF, IPTC or XMP, in order."""
    try:
        if data[:2] == b"\xff\xd8":
            parts = list(_jpeg_parts(data))
        elif data[:8] == b"\x89PNG\r\n\x1a\n":
            parts = [(kind, chunk) for kind, chunk in _png_chunks(data) if kind not in _PNG_METADATA]
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            parts = [(kind, chunk) for kind, chunk in _webp_chunks(data) if kind not in _WEBP_METADATA]
        else:
            parts = list(_frames(data))
    except (struct.error, IndexError, OSError, ValueError, SyntaxError) as error:
        raise CaptionerError(f"the file is damaged ({error})") from None
    return [(name, hashlib.sha256(part).hexdigest()) for name, part in parts]


def _jpeg_parts(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All segments but APP1 (EXIF, XMP) and APP13 (IPTC); then the scans with everything behind them.

    A multi-picture index (MPF) counts bytes from its own place, so everything behind it must stay where it is.
    """
    at = 2
    while True:
        if data[at] != 0xFF:
            raise ValueError("a segment of the JPEG does not begin with a marker")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker == 0xDA:  # start of scan
            yield b"scan", data[at:]
            return
        (size,) = struct.unpack_from(">H", data, at + 2)
        segment = data[at : at + 2 + size]
        if marker == 0xE2 and segment[4:8] == b"MPF\0":
            yield b"MPF", data[at:]
        if marker not in (0xE1, 0xED):
            yield b"segment", segment
        at += 2 + size


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        yield kind, data[at : at + 12 + size]
        at += 12 + size


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at < len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        yield kind, data[at : at + 8 + size]
        at += 8 + size + size % 2


def _frames(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The pixels of all frames: TIFF has its image data anywhere in the file."""
    with Image.open(BytesIO(data)) as image:
        for frame in ImageSequence.Iterator(image):
            yield f"{frame.mode} {frame.size}".encode(), frame.tobytes()
