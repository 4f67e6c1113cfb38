"""Raw files: the largest embedded JPEG is the picture, turned as the raw file says."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from captioner.errors import CaptionerError
from captioner.images.decoding import inspect, is_picture
from captioner.images.reading import read_image


def jpeg(width: int, height: int, left: str, right: str) -> bytes:
    image = Image.new("RGB", (width, height), left)
    image.paste(right, (width // 2, 0, width, height))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95)
    return file.getvalue()


def raw_file(path: Path, *previews: bytes, orientation: int = 1) -> Path:
    """A file built as Nikon's: TIFF with a small thumbnail, then previews, then data of the sensor."""
    tags = ImageFileDirectory_v2()
    tags[0x0112] = orientation
    thumbnail = io.BytesIO()
    Image.new("RGB", (160, 120), "green").save(thumbnail, "TIFF", tiffinfo=tags)
    sensor = np.random.default_rng(0).integers(0, 256, 300_000, np.uint8).tobytes() + b"\xff\xd8\xff\xc3 lossless"
    path.write_bytes(thumbnail.getvalue() + b"".join(previews) + sensor)
    return path


@pytest.mark.parametrize("name", ["photo.NEF", "photo.dng", "photo.arw"])
def test_the_largest_preview_is_the_picture(tmp_path: Path, name: str) -> None:
    path = raw_file(tmp_path / name, jpeg(240, 160, "green", "green"), jpeg(640, 480, "red", "blue"))
    image, frame = read_image(path)
    assert (frame.width, frame.height) == image.size == (640, 480)
    assert np.allclose(np.asarray(image.getpixel((100, 200))), (254, 0, 0), atol=4)
    assert np.allclose(np.asarray(image.getpixel((500, 200))), (0, 0, 254), atol=4)
    assert (inspect(path), is_picture(path)) == (frame, True)


def test_the_orientation_of_the_raw_file_turns_its_preview(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "photo.nef", jpeg(640, 480, "red", "blue"), orientation=6)  # turn clockwise
    image, frame = read_image(path)
    assert image.size == (480, 640) and frame.orientation == 6
    assert np.allclose(np.asarray(image.getpixel((200, 100))), (254, 0, 0), atol=4)  # what was left is at the top
    assert np.allclose(np.asarray(image.getpixel((200, 500))), (0, 0, 254), atol=4)


def test_a_preview_is_found_in_bytes_and_in_files_that_are_not_tiff(tmp_path: Path) -> None:
    data = b"FUJIFILMCCD-RAW 0201" + bytes(100) + jpeg(640, 480, "red", "blue") + bytes(1000)
    assert read_image(data)[0].size == (640, 480)
    assert read_image(io.BytesIO(data))[0].size == (640, 480)


@pytest.mark.parametrize("previews", [(), (jpeg(160, 120, "red", "blue"),), (jpeg(640, 480, "red", "blue")[:900],)])
def test_without_a_usable_preview_a_sentence_says_what_to_do(tmp_path: Path, previews: tuple[bytes, ...]) -> None:
    path = raw_file(tmp_path / "photo.nef", *previews)
    with pytest.raises(CaptionerError, match=r"photo\.nef: a raw file \(NEF\) without a preview.*convert it to JPEG"):
        read_image(path)
    assert is_picture(path)
