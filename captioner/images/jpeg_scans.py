"""The scans of a JPEG file: one for most pictures, about ten for progressive ones, thousands in a trap."""

from __future__ import annotations

from typing import IO

_SOS, _EOI = 0xDA, 0xD9
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # SOF0 to SOF15; three of these numbers mean something else
_SINGLE_SCAN_FRAMES = (0xC0, 0xC1)  # baseline and extended: one scan, unless it has only some of the components
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_FILL_LIMIT = 4096  # bytes between two segments that are skipped
_BLOCK = 1 << 20


def has_several_scans(file: IO[bytes]) -> bool:
    """Whether libjpeg must keep the whole picture's coefficients. Also true where the header is not well formed."""
    position = file.tell()
    try:
        return _has_several_scans(file)
    finally:
        file.seek(position)


def count_scans(file: IO[bytes]) -> int:
    """Start-of-scan markers in the whole file. Those of thumbnails count too; compressed data never looks like one."""
    position = file.tell()
    file.seek(0)
    scans, last = 0, b""
    while block := file.read(_BLOCK):
        scans += (last + block).count(b"\xff\xda")
        last = block[-1:]
    file.seek(position)
    return scans


def _has_several_scans(file: IO[bytes]) -> bool:
    file.seek(2)
    components = None
    while True:
        marker = _next_marker(file)
        if marker in _ALONE:
            continue
        if marker is None or marker == _EOI:
            return True
        size = int.from_bytes(file.read(2), "big")
        if marker in _FRAMES:
            frame = file.read(6)
            if marker not in _SINGLE_SCAN_FRAMES or len(frame) < 6:
                return True
            components = frame[5]
            file.seek(size - 8, 1)
        elif marker == _SOS:
            return file.read(1) != bytes([components or 0])
        else:
            file.seek(max(size - 2, 0), 1)


def _next_marker(file: IO[bytes]) -> int | None:
    """The number of the next marker. None at the end of the file, or after too many bytes of something else."""
    start = file.read(2)
    if len(start) == 2 and start[0] == 0xFF and start[1] not in (0, 0xFF):  # nearly always
        return start[1]
    file.seek(-len(start), 1)
    seen_ff = False
    for _ in range(_FILL_LIMIT):
        byte = file.read(1)
        if not byte:
            return None
        if byte == b"\xff":
            seen_ff = True
        elif seen_ff and byte != b"\0":
            return byte[0]
        else:
            seen_ff = False
    return None
