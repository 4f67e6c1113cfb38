"""Checking the EXIF data of a photo before it is written: what Exiv2 cannot read, it would drop."""

from __future__ import annotations

import struct

from captioner.errors import CaptionerError
from captioner.writers.image_data import exif_block

_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}  # bytes, by type
_DIRECTORIES = (0x8769, 0x8825)  # EXIF and GPS: fields of the first directory that say where these are


def check_exif(data: bytes) -> None:
    """Refuse a photo with a directory of EXIF data, or a value of a field, that is not within the data.

    Nothing is decoded, so large photos take no memory, and no warning of Pillow is involved.
    """
    block = exif_block(data)
    if not block:
        return
    order = _ORDERS.get(block[:4])
    if order is None:
        raise CaptionerError("its EXIF data is damaged (it has no header)")
    try:
        fields = _directory(block, order, struct.unpack_from(f"{order}I", block, 4)[0])
        for tag in _DIRECTORIES:
            if tag in fields:
                _directory(block, order, fields[tag])
    except struct.error:
        raise CaptionerError("its EXIF data is damaged (a directory is cut off)") from None


def _directory(block: bytes, order: str, at: int) -> dict[int, int]:
    """The fields of a directory: by tag, where the value is, or the value if it is short."""
    (number,) = struct.unpack_from(f"{order}H", block, at)
    fields = {}
    for entry in range(number):
        tag, kind, count, place = struct.unpack_from(f"{order}HHII", block, at + 2 + 12 * entry)
        size = _SIZES.get(kind, 0) * count
        if size > 4 and place + size > len(block):
            raise CaptionerError(f"its EXIF data is damaged (the field 0x{tag:04x} is cut off)")
        fields[tag] = place
    return fields
