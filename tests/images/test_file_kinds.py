"""Files are recognised by their content; the name decides only for raw files that begin like TIFF."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from PIL import Image

from captioner.images.file_kinds import FileKind, file_kind, kind_of


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "PPM"])
def test_what_pillow_writes_is_a_picture(format: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (20, 20)).save(file, format)
    kind = kind_of(file.getvalue())
    assert (kind.group, kind.format.upper()) == ("picture", format)


def test_what_pillow_heif_writes_is_heic() -> None:
    import pillow_heif

    file = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 64))).save(file)
    assert kind_of(file.getvalue()) == FileKind("HEIC", "HEIC")


@pytest.mark.parametrize(
    ("header", "name", "kind"),
    [
        (b"II*\0\x10\0\0\0CR\x02\0", "a", FileKind("raw", "CR2")),
        (b"II*\0\x08\0\0\0", "a.NEF", FileKind("raw", "NEF")),
        (b"MM\0*\0\0\0\x08", "a.nef", FileKind("raw", "NEF")),
        (b"II*\0\x08\0\0\0", "a.tif", FileKind("picture", "TIFF")),
        (b"\xff\xd8\xff\xe1", "a.nef", FileKind("picture", "JPEG")),
        (b"FUJIFILMCCD-RAW 0201", "a", FileKind("raw", "RAF")),
        (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "a", FileKind("raw", "CR3")),
        (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "a.mov", FileKind("video", "MOV")),
        (b"\0\0\0\x18ftypisom\0\0\2\0isommp41", "a.heic", FileKind("video", "MP4")),
        (b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf", "a", FileKind("picture", "AVIF")),
        (b'<?xml version="1.0"?>\n<!-- drawn -->\n<svg xmlns="x">', "a", FileKind("drawing", "SVG")),
        (b"%!PS-Adobe-3.0 EPSF", "a.jpg", FileKind("drawing", "EPS")),
        (b"BMW drives on the road, says the text", "a.txt", FileKind("other")),
        (b"P5 is the name of a motorway", "a.txt", FileKind("other")),
        (b"a man riding a wave\n", "a.txt", FileKind("other")),
        (b"", "a.jpg", FileKind("other")),
    ],
)
def test_headers_from_the_specifications(header: bytes, name: str, kind: FileKind) -> None:
    assert kind_of(header, name) == kind


def test_folders_missing_files_and_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe"):
        assert file_kind(path) == FileKind("other")
