"""What a file is, by its first bytes: a picture, HEIC, a raw file, a drawing, a video, or something else.

The name decides only where the content cannot: raw files of many cameras begin like any TIFF file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Group = Literal["picture", "HEIC", "raw", "drawing", "video", "other"]
HEADER = 1024  # bytes that are enough to recognise a file

RAW_SUFFIXES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".iiq", ".kdc", ".mef", ".mos", ".mrw"),
    *(".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"),
)

_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"heif", b"mif1", b"msf1"}
_RAW_STARTS = {
    b"FUJIFILMCCD-RAW": "RAF",
    b"FOVb": "X3F",
    b"IIRO": "ORF",
    b"IIRS": "ORF",
    b"MMOR": "ORF",
    b"IIU\0": "RW2",
    b"II\x1a\0\0\0HEAPCCDR": "CRW",
}
_PICTURE_STARTS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"II+\0": "TIFF",
    b"MM\0+": "TIFF",
}
_DRAWING_STARTS = {
    b"%PDF-": "PDF",
    b"%!PS": "EPS",
    b"\xc5\xd0\xd3\xc6": "EPS",
    b"8BPS": "PSD",
    b"gimp xcf": "XCF",
}
_VIDEO_STARTS = {b"\x1a\x45\xdf\xa3": "MKV", b"\0\0\1\xba": "MPEG", b"OggS": "OGG", b"FLV\1": "FLV"}
_PNM = re.compile(rb"P[1-6]\s+(?:#[^\n]*\n\s*)*\d+\s+\d+\s")
_SVG = re.compile(rb"\s*(?:<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE[^>]*>|\s)*<svg[\s>]", re.DOTALL)
_BMP_HEADERS = {12, 40, 52, 56, 64, 108, 124}  # sizes of the second header


@dataclass(frozen=True)
class FileKind:
    """The group that a file belongs to, and the name of its format."""

    group: Group
    format: str = ""

    @property
    def holds_picture(self) -> bool:
        """Whether there is a picture to caption, if the reader for it is installed."""
        return self.group in ("picture", "HEIC", "raw")


def file_kind(path: Path) -> FileKind:
    """The kind of a file; `other` where it cannot be read. A pipe is not opened."""
    try:
        if not path.is_file():
            return FileKind("other")
        with path.open("rb") as file:
            return kind_of(file.read(HEADER), path.name)
    except OSError:
        return FileKind("other")


def kind_of(header: bytes, name: str = "") -> FileKind:
    """The kind of a file that begins with these bytes."""
    suffix = Path(name).suffix.lower()
    if header[4:8] == b"ftyp":
        return _of_container(header)
    for start, format in _RAW_STARTS.items():
        if header.startswith(start):
            return FileKind("raw", format)
    if header[:4] in (b"II*\0", b"MM\0*") and (suffix in RAW_SUFFIXES or header[8:10] == b"CR"):
        return FileKind("raw", suffix[1:].upper() if suffix in RAW_SUFFIXES else "CR2")
    for starts, group in ((_PICTURE_STARTS, "picture"), (_DRAWING_STARTS, "drawing"), (_VIDEO_STARTS, "video")):
        for start, format in starts.items():
            if header.startswith(start):
                return FileKind(group, format)  # type: ignore[arg-type]
    if header[:4] == b"RIFF":
        return {b"WEBP": FileKind("picture", "WebP"), b"AVI ": FileKind("video", "AVI")}.get(
            header[8:12], FileKind("other")
        )
    if header[:2] == b"BM" and int.from_bytes(header[14:18], "little") in _BMP_HEADERS:
        return FileKind("picture", "BMP")
    if _PNM.match(header):
        return FileKind("picture", "PPM")
    if _SVG.match(header) or (suffix == ".svgz" and header.startswith(b"\x1f\x8b")):
        return FileKind("drawing", "SVG")
    return FileKind("other")


def _of_container(header: bytes) -> FileKind:
    """Files of boxes, which name their brands: HEIC, AVIF, Canon's raw files and most videos."""
    size = int.from_bytes(header[:4], "big")
    major = header[8:12]
    brands = {major, *(header[k : k + 4] for k in range(16, min(size, len(header)), 4))}
    if brands & {b"avif", b"avis"}:
        return FileKind("picture", "AVIF")
    if major == b"crx ":
        return FileKind("raw", "CR3")
    if brands & _HEIC_BRANDS:
        return FileKind("HEIC", "HEIC")
    return FileKind("video", "MOV" if major == b"qt  " else "MP4")
