"""Captions inside photos, as metadata that photo programs read.

A caption becomes the description (XMP dc:description, EXIF ImageDescription, and IPTC Caption-Abstract where the photo
has IPTC) and the alternative text (XMP Iptc4xmpCore:AltTextAccessibility). Exiv2 writes the fields, and the image data
is not encoded again. Every new file is compared with the old one before it takes its place: the image data must be the
same, and no other field may be lost. Exiv2 may arrange the camera maker's own block (MakerNote) anew if it knows its
layout; then all fields that it reads from the block are compared, otherwise the bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioner.errors import CaptionerError
from captioner.files.atomic import open_atomically
from captioner.images.file_kinds import FileKind, file_kind
from captioner.images.limits import LIMITS, Limits
from captioner.writers.exif_check import check_exif
from captioner.writers.image_data import image_data

DESCRIPTION, ALT_TEXT = "Xmp.dc.description", "Xmp.iptc.AltTextAccessibility"
EXIF_DESCRIPTION, IPTC_DESCRIPTION = "Exif.Image.ImageDescription", "Iptc.Application2.Caption"
MAKER_NOTE, MAKER_NOTE_READ = "Exif.Photo.MakerNote", "Exif.MakerNote.Offset"  # the latter if Exiv2 knows the maker
IPTC_CHARSET = "Iptc.Envelope.CharacterSet"
FORMATS = ("JPEG", "PNG", "WebP", "TIFF")  # Exiv2 writes other formats not at all, or not without risk
LARGEST = 1 << 30  # bytes; larger files are not read into memory

Fields = dict[str, dict[str, Any]]  # fields by name, for each of "exif", "iptc" and "xmp"


class MetadataWriter:
    """Writes captions into photos. An existing description is kept, unless `overwrite` is given."""

    adds_lines = False
    change = "--overwrite replaces it"

    def __init__(self, *, overwrite: bool = False, limits: Limits = LIMITS) -> None:
        """`limits` are for decoding TIFF files, to compare their pixels."""
        self.overwrite, self._limits = overwrite, limits

    def write(self, name: str, lines: Sequence[str]) -> Path | None:
        """Write the first line into the photo. Returns its path if an existing description was kept."""
        path = Path(os.path.realpath(name))  # a link stays a link: its target is changed
        kind = file_kind(path)
        if kind.format not in FORMATS or kind.group != "picture":
            raise CaptionerError(f"{name}: {_unsupported(kind)}")
        try:
            old = _read(path)
            before = read_fields(old)
            check_exif(old)
            if not self.overwrite and description(before) is not None:
                return path
            new = edited(old, changes(before, lines[0], overwrite=self.overwrite))
            _check_nothing_lost(old, new, before, self._limits)
            _replace(path, new)
        except OSError as error:
            raise CaptionerError(f"{name}: cannot be written ({error.strerror})") from None
        except CaptionerError as error:
            raise CaptionerError(f"{name}: {error}; the photo is unchanged, --xmp-sidecar writes beside it") from None
        return None

    def has(self, name: str) -> bool:
        """Whether the photo has a description."""
        try:
            return description(read_fields(_read(Path(name)))) is not None
        except (OSError, CaptionerError):
            return False


def description(fields: Fields) -> str | None:
    """The description that a photo has, from the first field that is not blank."""
    for group, key in (("xmp", DESCRIPTION), ("exif", EXIF_DESCRIPTION), ("iptc", IPTC_DESCRIPTION)):
        value = fields[group].get(key)
        text = " ".join(map(str, value.values())) if isinstance(value, Mapping) else str(value or "")
        if text.strip(" \0\t\r\n"):
            return text
    return None


def changes(fields: Fields, text: str, *, overwrite: bool) -> Fields:
    """The fields to write for a caption. Alternative text that a person wrote is kept."""
    new: Fields = {
        "xmp": {DESCRIPTION: {'lang="x-default"': text}},
        "exif": {EXIF_DESCRIPTION: text},
        "iptc": {},
    }
    if overwrite or not fields["xmp"].get(ALT_TEXT):
        new["xmp"][ALT_TEXT] = {'lang="x-default"': text}
    if fields["iptc"]:
        new["iptc"][IPTC_DESCRIPTION] = text
        if not text.isascii():
            new["iptc"][IPTC_CHARSET] = "\x1b%G"  # UTF-8
    return new


def edited(data: bytes, new: Fields) -> bytes:
    """A photo, or an XMP file, with these fields changed."""
    exiv2 = exiv2_library()
    try:
        with exiv2.ImageData(data) as image:
            if new["xmp"]:
                image.modify_xmp(new["xmp"])
            if new["exif"]:
                image.modify_exif(new["exif"])
            if new["iptc"]:
                image.modify_iptc(new["iptc"])
            result: bytes = image.get_bytes()
            return result
    except RuntimeError as error:
        raise CaptionerError(f"its metadata cannot be written ({_reason(error)})") from None


def read_fields(data: bytes) -> Fields:
    """All fields of a photo or an XMP file."""
    exiv2 = exiv2_library()
    try:
        with exiv2.ImageData(data) as image:
            return {"exif": image.read_exif(), "iptc": image.read_iptc(), "xmp": image.read_xmp()}
    except (RuntimeError, UnicodeDecodeError) as error:
        raise CaptionerError(f"its metadata is damaged ({_reason(error)})") from None


def exiv2_library() -> Any:
    """The module pyexiv2, silent: what it would print becomes an error of a photo."""
    import pyexiv2

    pyexiv2.set_log_level(4)
    return pyexiv2


def _read(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise CaptionerError("the file is too large to change")
    return path.read_bytes()


def _check_nothing_lost(old: bytes, new: bytes, before: Fields, limits: Limits) -> None:
    if image_data(old, limits=limits) != image_data(new, limits=limits):
        raise CaptionerError("writing its metadata would change more than metadata")
    after = read_fields(new)
    ours = {DESCRIPTION, ALT_TEXT, EXIF_DESCRIPTION, IPTC_DESCRIPTION, IPTC_CHARSET}
    for group, fields in before.items():
        for key, value in fields.items():
            if key in ours or _is_layout(key):
                continue
            kept = after[group].get(key)
            may_change = key == MAKER_NOTE and MAKER_NOTE_READ in fields
            if kept is None if may_change else kept != value:
                raise CaptionerError(f"writing would lose {key}")


def _is_layout(key: str) -> bool:
    """Fields that say where something is in the file. They change when the file does."""
    return key.endswith(("Offset", "Offsets", "Tag", "ByteOrder")) or key == "Exif.Thumbnail.JPEGInterchangeFormat"


def _replace(path: Path, data: bytes) -> None:
    """Replace a photo in one step, with its permissions, times, and extended attributes."""
    status = path.stat()
    with open_atomically(path) as file:
        file.write(data)
        file.flush()
        if hasattr(os, "fchown") and (status.st_uid, status.st_gid) != (os.getuid(), os.getgid()):
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
        shutil.copystat(path, file.name)


def _unsupported(kind: FileKind) -> str:
    name = kind.format or "this kind of file"
    return f"captions cannot be written into {name}; --xmp-sidecar writes them beside it, and the photo is unchanged"


def _reason(error: Exception) -> str:
    return str(error).strip().rstrip(".").replace("\n", " ")[:200] or type(error).__name__
