"""The parts of a photo file: those that are not metadata, to prove that writing metadata does not change them."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO

from captioner.errors import CaptionerError
from captioner.images.decoding import stored_frames
from captioner.images.limits import LIMITS, Limits

_PNG_METADATA = {b"tEXt", b"zTXt", b"iTXt", b"eXIf"}
_EXIF, _PNG_TEXT = b"Exif\0\0", b"Raw profile type exif\0"
_MOST_TEXT = 1 << 24  # bytes; EXIF data of a camera has less than 100 KB
_WEBP_METADATA = {b"EXIF", b"XMP ", b"VP8X"}  # VP8X has flags that say which metadata there is


def image_data(data: bytes, *, limits: Limits = LIMITS) -> list[tuple[bytes, str]]:
    """Name and checksum of every part of a JPEG, PNG, WebP or TIFF file that is not EXIF, IPTC or XMP, in order.

    Only a TIFF file is decoded for it, within the limits.
    """
    parts: Iterator[tuple[bytes, bytes]]
    if _is_jpeg(data):
        parts = _jpeg_parts(data)
    elif _is_png(data):
        parts = ((kind, chunk) for kind, chunk in _png_chunks(data) if kind not in _PNG_METADATA)
    elif _is_webp(data):
        parts = ((kind, chunk) for kind, chunk in _webp_chunks(data) if kind not in _WEBP_METADATA)
    else:
        parts = _frames(data, limits)
    try:
        return [(name, hashlib.sha256(part).hexdigest()) for name, part in parts]
    except (struct.error, IndexError, OSError, ValueError, SyntaxError) as error:
        raise CaptionerError(f"the file is damaged ({error})") from None


def exif_block(data: bytes) -> bytes:
    """The EXIF data of a JPEG, PNG or WebP file, which has the structure of a TIFF file; a TIFF file as it is."""
    try:
        if _is_jpeg(data):
            segments = (segment for marker, _, segment in _jpeg_segments(data) if marker == 0xE1)
            return b"".join(segment[10:] for segment in segments if segment[4:10] == _EXIF)
        if _is_png(data):
            return next(filter(None, (_png_exif(kind, chunk) for kind, chunk in _png_chunks(data))), b"")
        if _is_webp(data):
            return next((chunk[8:].removeprefix(_EXIF) for kind, chunk in _webp_chunks(data) if kind == b"EXIF"), b"")
        return data
    except (struct.error, IndexError, ValueError, zlib.error) as error:
        raise CaptionerError(f"the file is damaged ({error})") from None


def _is_jpeg(data: bytes) -> bool:
    return data[:2] == b"\xff\xd8"


def _is_png(data: bytes) -> bool:
    return data[:8] == b"\x89PNG\r\n\x1a\n"


def _is_webp(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WEBP"


def _jpeg_parts(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All segments but APP1 (EXIF, XMP) and APP13 (IPTC); then the scans with everything behind them.

    A multi-picture index (MPF) counts bytes from its own place, so everything behind it must stay where it is.
    """
    for marker, at, segment in _jpeg_segments(data):
        if marker == 0xE2 and segment[4:8] == b"MPF\0":
            yield b"MPF", data[at:]
        if marker not in (0xE1, 0xED):
            yield b"scan" if marker == 0xDA else b"segment", segment


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Marker, place and content of all segments. The last one is the first scan, with everything behind it."""
    at = 2
    while True:
        if data[at] != 0xFF:
            raise ValueError("a segment of the JPEG does not begin with a marker")
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker == 0xDA:  # start of scan
            yield marker, at, data[at:]
            return
        (size,) = struct.unpack_from(">H", data, at + 2)
        yield marker, at, data[at : at + 2 + size]
        at += 2 + size


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        yield kind, data[at : at + 12 + size]
        at += 12 + size


def _png_exif(kind: bytes, chunk: bytes) -> bytes:
    """The EXIF data of a chunk, also of a text in hexadecimal as ImageMagick writes it; empty for other chunks."""
    content = chunk[8:-4]
    if kind == b"eXIf":
        return content.removeprefix(_EXIF)
    if kind not in (b"tEXt", b"zTXt") or not content.startswith(_PNG_TEXT):
        return b""
    text = content.removeprefix(_PNG_TEXT)
    if kind == b"zTXt":
        text = zlib.decompressobj().decompress(text[1:], _MOST_TEXT)
    return bytes.fromhex("".join(text.decode("latin-1").split("\n")[3:])).removeprefix(_EXIF)


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at < len(data):
        kind, size = struct.unpack_from("<4sI", data, at)
        yield kind, data[at : at + 8 + size]
        at += 8 + size + size % 2


def _frames(data: bytes, limits: Limits) -> Iterator[tuple[bytes, bytes]]:
    """The pixels of all frames: TIFF has its image data anywhere in the file."""
    for frame in stored_frames(BytesIO(data), "its image data", limits=limits):
        yield f"{frame.mode} {frame.size}".encode(), frame.tobytes()
