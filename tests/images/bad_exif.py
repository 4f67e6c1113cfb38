"""A photo whose EXIF data claims more than the file has."""

from __future__ import annotations

import io
import struct

from PIL import Image


def with_bad_exif(width: int = 8, height: int = 8, shade: int = 90) -> bytes:
    """A JPEG whose description (tag 0x010E) claims to have two billion letters: Pillow warns about it."""
    entry = struct.pack("<HHII", 0x010E, 2, 2_000_000_000, 26)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 20, 200)).save(buffer, "JPEG", exif=exif)
    return buffer.getvalue()
