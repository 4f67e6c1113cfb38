"""Captions in photos: other programs read them, the image stays the same, and nothing that was there is lost.

exiftool reads the result where it is installed. Pillow and an XML parser read it everywhere.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import struct
import subprocess
import warnings
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import ExifTags, Image, IptcImagePlugin

from captioner.errors import CaptionerError
from captioner.images.limits import Limits
from captioner.writers import photo_metadata
from captioner.writers.image_data import image_data
from captioner.writers.photo_metadata import MetadataWriter
from captioner.writers.xmp_sidecars import XmpSidecarWriter

TEXT = "A dög runs."
NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "core": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
}
FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "TIFF": "tif"}


def photo(path: Path, format: str = "JPEG", *, description: str | None = None, **options: Any) -> Path:
    """A photo with camera data, GPS position and a resolution."""
    exif = Image.Exif()
    exif[ExifTags.Base.Make], exif[ExifTags.Base.Orientation] = "Camera", 6
    exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitudeRef] = "N"
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.ISOSpeedRatings] = 400
    if description is not None:
        exif[ExifTags.Base.ImageDescription] = description
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    Image.fromarray(pixels).save(path, format, exif=exif.tobytes(), **options)
    return path


def with_iptc(path: Path) -> Path:
    """Adds an IPTC block with the city, as Photoshop writes it."""
    record = b"\x1c\x02\x5a\x00\x05Paris"
    resource = b"8BIM\x04\x04\x00\x00" + struct.pack(">I", len(record)) + record
    content = b"Photoshop 3.0\0" + resource
    data = path.read_bytes()
    path.write_bytes(data[:2] + b"\xff\xed" + struct.pack(">H", len(content) + 2) + content + data[2:])
    return path


def xmp(data: bytes) -> tuple[str, str]:
    """Description and alternative text of the XMP packet in a file."""
    start = data.index(b"<x:xmpmeta")
    packet = ElementTree.fromstring(data[start : data.index(b"</x:xmpmeta>") + 12])
    return tuple(  # type: ignore[return-value]
        "".join(item.text or "" for item in packet.findall(f".//{name}/rdf:Alt/rdf:li", NAMESPACES))
        for name in ("dc:description", "core:AltTextAccessibility")
    )


@pytest.mark.parametrize("format", FORMATS)
def test_pillow_reads_the_caption_and_everything_else_is_as_before(tmp_path: Path, format: str):
    path = photo(tmp_path / f"dog.{FORMATS[format]}", format)
    before = path.read_bytes()
    with Image.open(path) as image:
        pixels = image.tobytes()
    assert MetadataWriter().write(str(path), [TEXT]) is None
    after = path.read_bytes()
    assert xmp(after) == (TEXT, TEXT)
    assert image_data(after) == image_data(before)
    with Image.open(path) as image:
        exif = image.getexif()
        assert exif[ExifTags.Base.ImageDescription].encode("latin-1").decode("utf-8") == TEXT
        assert (exif[ExifTags.Base.Make], exif[ExifTags.Base.Orientation]) == ("Camera", 6)
        assert exif.get_ifd(ExifTags.IFD.GPSInfo)[ExifTags.GPS.GPSLatitudeRef] == "N"
        assert exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.ISOSpeedRatings] == 400
        assert image.tobytes() == pixels


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not installed")
@pytest.mark.parametrize("format", FORMATS)
def test_exiftool_reads_the_caption_and_finds_no_new_error(tmp_path: Path, format: str):
    path = photo(tmp_path / f"dog.{FORMATS[format]}", format)

    def read() -> dict[str, Any]:
        call = ["exiftool", "-json", "-G1", "-a", "-all", "-validate", str(path)]
        (values,) = json.loads(subprocess.run(call, capture_output=True, check=True).stdout)
        return dict(values)

    before = read()
    MetadataWriter().write(str(path), [TEXT])
    after = read()
    assert after["XMP-dc:Description"] == after["XMP-iptcCore:AltTextAccessibility"] == TEXT
    assert after["IFD0:ImageDescription"] == TEXT
    assert after["ExifTool:Validate"] == before["ExifTool:Validate"]
    moved = ("System:", "StripOffsets", "SourceFile", "ExifByteOrder", "WebP_Flags")
    assert {k: v for k, v in before.items() if not any(part in k for part in moved)}.items() <= after.items()


def test_iptc_gets_the_caption_only_where_it_exists(tmp_path: Path):
    plain, newspaper = photo(tmp_path / "a.jpg"), with_iptc(photo(tmp_path / "b.jpg"))
    for path in (plain, newspaper):
        MetadataWriter().write(str(path), [TEXT])
    with Image.open(plain) as image:
        assert not IptcImagePlugin.getiptcinfo(image)
    with Image.open(newspaper) as image:
        fields = IptcImagePlugin.getiptcinfo(image)
    assert fields is not None and fields[2, 120] == TEXT.encode() and fields[2, 90] == b"Paris"
    assert fields[1, 90] == b"\x1b%G"


def test_an_existing_description_is_kept_unless_it_is_to_be_replaced(tmp_path: Path):
    path = photo(tmp_path / "dog.jpg", description="Our dog Rex")
    before = path.read_bytes()
    assert MetadataWriter().write(str(path), [TEXT]) == path
    assert path.read_bytes() == before
    assert MetadataWriter(overwrite=True).write(str(path), [TEXT]) is None
    assert xmp(path.read_bytes())[0] == TEXT
    assert MetadataWriter().write(str(path), ["Another."]) == path


def test_a_blank_description_of_a_camera_counts_as_none(tmp_path: Path):
    path = photo(tmp_path / "dog.jpg", description=" " * 31)
    assert MetadataWriter().write(str(path), [TEXT]) is None
    assert xmp(path.read_bytes())[0] == TEXT


def test_times_permissions_and_links_stay(tmp_path: Path):
    path = photo(tmp_path / "dog.jpg")
    path.chmod(0o640)
    os.utime(path, ns=(1_000_000_000_123_456_789, 1_100_000_000_987_654_321))
    link = tmp_path / "link.jpg"
    link.symlink_to(path)
    MetadataWriter().write(str(link), [TEXT])
    assert link.is_symlink() and xmp(path.read_bytes())[0] == TEXT
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_mtime_ns == 1_100_000_000_987_654_321
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dog.jpg", "link.jpg"]


def test_data_behind_the_photo_stays(tmp_path: Path):
    """Phones append videos and depth maps."""
    path = photo(tmp_path / "dog.jpg")
    path.write_bytes(path.read_bytes() + b"a short video")
    MetadataWriter().write(str(path), [TEXT])
    assert path.read_bytes().endswith(b"\xff\xd9a short video")


def damaged_exif(path: Path) -> None:
    data = photo(path).read_bytes()
    at = data.index(b"Exif\0\0") + 6
    path.write_bytes(data[: at + 8] + b"\xff\xff" + data[at + 10 :])  # 65,535 entries in the first directory


def field_outside(path: Path) -> None:
    """The name of the camera's maker begins behind the end of the EXIF data."""
    data = photo(path).read_bytes()
    field = data.index(b"\x01\x0f\x00\x02")
    path.write_bytes(data[: field + 8] + b"\0\0\xff\xff" + data[field + 12 :])


def png_field_outside(path: Path) -> None:
    data = photo(path, "PNG").read_bytes()
    field = data.index(b"\x01\x0f\x00\x02")
    start = data.index(b"eXIf")
    (size,) = struct.unpack_from(">I", data, start - 4)
    chunk = data[start : field + 8] + b"\0\0\xff\xff" + data[field + 12 : start + 4 + size]
    path.write_bytes(data[:start] + chunk + struct.pack(">I", zlib.crc32(chunk)) + data[start + 8 + size :])


def no_exif_header(path: Path) -> None:
    data = photo(path).read_bytes()
    at = data.index(b"Exif\0\0") + 6
    path.write_bytes(data[:at] + b"\0\0\0\0" + data[at + 4 :])


def large_xmp(path: Path) -> None:
    """An XMP packet that leaves no room in its segment of 64 KB."""
    packet = (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" dc:source="'
        + "x" * 64_900
        + '"/></rdf:RDF></x:xmpmeta>'
    )
    photo(path, xmp=packet.encode())


def read_only(path: Path) -> None:
    photo(path).chmod(0o444)


def cut(path: Path) -> None:
    path.write_bytes(photo(path).read_bytes()[:700])


def other(format: str):
    def write(path: Path) -> None:
        Image.new("RGB", (32, 32)).save(path, format)

    return write


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (damaged_exif, "EXIF data is damaged"),
        (field_outside, "EXIF data is damaged"),
        (png_field_outside, "EXIF data is damaged"),
        (no_exif_header, "damaged"),
        (large_xmp, "cannot be written"),
        (read_only, "the file is read-only"),
        (cut, "damaged"),
        (other("AVIF"), "captions cannot be written into AVIF"),
        (other("GIF"), "captions cannot be written into GIF"),
        (other("BMP"), "captions cannot be written into BMP"),
    ],
)
def test_a_photo_that_cannot_be_changed_gets_a_sentence_and_stays_as_it_is(tmp_path: Path, make, sentence: str):
    path = tmp_path / "dog.jpg"
    make(path)
    before, status = path.read_bytes(), path.stat()
    with pytest.raises(CaptionerError) as failure:
        MetadataWriter(overwrite=True).write(str(path), [TEXT])
    assert str(failure.value).startswith(f"{path}: ") and sentence in str(failure.value)
    assert "\n" not in str(failure.value)
    assert path.read_bytes() == before and path.stat().st_mtime_ns == status.st_mtime_ns
    assert [entry.name for entry in tmp_path.iterdir()] == ["dog.jpg"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_large_photo_is_written_and_the_warnings_of_other_threads_stay_as_they_are(
    tmp_path: Path, monkeypatch, format: str
):
    """Pillow's own limit is lower than ours, and it warns above it; warning filters belong to all threads."""
    path = photo(tmp_path / f"dog.{FORMATS[format]}", format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)

    def touched(*arguments: object, **options: object) -> None:
        raise AssertionError("the filters of all threads were changed")

    with monkeypatch.context() as patch:
        patch.setattr(warnings, "catch_warnings", touched)
        assert MetadataWriter().write(str(path), [TEXT]) is None
    assert xmp(path.read_bytes())[0] == TEXT


def test_a_tiff_above_the_limits_is_not_decoded(tmp_path: Path):
    path = photo(tmp_path / "dog.tif", "TIFF")
    before = path.read_bytes()
    with pytest.raises(CaptionerError, match=r"dog\.tif: its image data: 48x64 is more than the limit of 1,000 pixels"):
        MetadataWriter(limits=Limits(pixels=1000)).write(str(path), [TEXT])
    assert path.read_bytes() == before


@pytest.mark.parametrize("note", [None, b"made by another"])
def test_a_note_of_the_maker_that_would_be_lost_or_changed_is_an_error(tmp_path: Path, monkeypatch, note: bytes | None):
    def with_note(path: Path, note: bytes | None) -> bytes:
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.ISOSpeedRatings] = 400
        if note is not None:
            exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.MakerNote] = note
        Image.new("RGB", (32, 32)).save(path, exif=exif.tobytes())
        return path.read_bytes()

    path = tmp_path / "dog.jpg"
    changed = with_note(tmp_path / "changed.jpg", note)
    before = with_note(path, b"made by the maker")
    assert MetadataWriter().write(str(path), [TEXT]) is None
    assert b"made by the maker" in path.read_bytes()
    path.write_bytes(before)
    monkeypatch.setattr(photo_metadata, "edited", lambda data, new: changed)
    with pytest.raises(CaptionerError, match=r"would lose Exif\.Photo\.MakerNote"):
        MetadataWriter().write(str(path), [TEXT])
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_photo(tmp_path: Path, monkeypatch):
    import errno

    path = photo(tmp_path / "dog.jpg")
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptionerError, match="No space left on device"):
        MetadataWriter().write(str(path), [TEXT])
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.iterdir()] == ["dog.jpg"]


def test_the_image_data_of_another_photo_is_different(tmp_path: Path):
    first, second = tmp_path / "a.jpg", tmp_path / "b.jpg"
    photo(first)
    photo(second, quality=60)
    assert image_data(first.read_bytes()) != image_data(second.read_bytes())
    data = io.BytesIO()
    Image.new("RGB", (8, 8)).save(data, "PNG")
    changed = data.getvalue().replace(b"IDAT", b"IDAX")
    assert image_data(changed) != image_data(data.getvalue())


def test_a_new_xmp_sidecar_has_the_caption(tmp_path: Path):
    assert XmpSidecarWriter().write(str(tmp_path / "dog.nef"), [TEXT]) is None
    assert xmp((tmp_path / "dog.xmp").read_bytes()) == (TEXT, TEXT)
    assert XmpSidecarWriter().has(str(tmp_path / "dog.nef")) and not XmpSidecarWriter().has(str(tmp_path / "cat.nef"))


def test_an_xmp_sidecar_of_another_program_keeps_its_settings(tmp_path: Path):
    path = tmp_path / "dog.xmp"
    path.write_text(
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4"/></rdf:RDF></x:xmpmeta>'
    )
    XmpSidecarWriter().write(str(tmp_path / "dog.nef"), [TEXT])
    assert 'xmp:Rating="4"' in path.read_text() and xmp(path.read_bytes())[0] == TEXT
    kept = path.read_bytes()
    assert XmpSidecarWriter().write(str(tmp_path / "dog.nef"), ["Another."]) == path
    assert path.read_bytes() == kept
    assert XmpSidecarWriter(overwrite=True).write(str(tmp_path / "dog.nef"), ["Another."]) is None
    assert xmp(path.read_bytes())[0] == "Another." and 'xmp:Rating="4"' in path.read_text()


def test_a_broken_xmp_sidecar_and_a_shared_one_are_refused(tmp_path: Path):
    path = tmp_path / "dog.xmp"
    path.write_text("<x:xmpmeta this is no XML")
    with pytest.raises(CaptionerError, match="it is unchanged"):
        XmpSidecarWriter(overwrite=True).write(str(tmp_path / "dog.nef"), [TEXT])
    assert path.read_text() == "<x:xmpmeta this is no XML"
    writer = XmpSidecarWriter()
    writer.write(str(tmp_path / "cat.nef"), [TEXT])
    with pytest.raises(CaptionerError, match=r"already belongs to .*cat\.nef"):
        writer.write(str(tmp_path / "cat.jpg"), [TEXT])
