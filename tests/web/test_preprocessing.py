"""The browser's pixels against Pillow's: resampling to the last bit, orientation, transparency, large JPEG files."""

from __future__ import annotations

import base64
import io
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
from numpy.typing import NDArray
from PIL import Image

from captioner.evidence.blurring import blank
from captioner.images.pixels import squash
from captioner.images.reading import DRAFT, load_for_model
from tests.serve.pictures import b64

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZE = 160  # large enough that no example is reduced by the JPEG decoder
BYTES = """const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const base64 = (array) => btoa(array.reduce((text, byte) => text + String.fromCharCode(byte), ""));
"""
SQUASH = (
    BYTES
    + """const { squash } = await import("./resampling.js");
return base64(squash(new Uint8ClampedArray(bytes(args[0])), args[1], args[2], args[3]));"""
)
READ = (
    BYTES
    + """const { readPicture } = await import("./reading.js");
const file = new File([bytes(args[0])], "photo"), limits = { pixels: args[2] ?? 1e9, draft: args[3] };
const { pixels, width, height } = await readPicture(file, "photo", args[1], limits);
return [base64(pixels), width, height];"""
)
ERASE = (
    BYTES
    + """const { withoutCells } = await import("./reading.js");
return base64(withoutCells(bytes(args[0]), args[1], args[2], args[3], args[4]));"""
)


def pixels_of(text: str, size: int) -> NDArray[np.uint8]:
    return np.frombuffer(base64.b64decode(text), np.uint8).reshape(size, size, 3)


def read(scripts: Any, data: bytes, size: int = SIZE) -> NDArray[np.uint8]:
    text, width, height = scripts(READ, b64(data), size, None, DRAFT)
    frame = load_for_model(data, size)[0].frame
    assert (width, height) == (frame.width, frame.height)
    return pixels_of(text, size)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, format, **options)
    return data.getvalue()


# Larger, smaller, reduced first along one axis or both, of equal size along one axis, one pixel high.
SIZES = [(50, 37), (500, 375), (64, 300), (300, 64), (64, 64), (801, 203), (450, 650), (331, 1), (1, 1), (640, 641)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("size", [64, 57])
def test_resampling_equals_pillows_to_the_last_bit(scripts: Any, width: int, height: int, size: int):
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 4), np.uint8)
    noise[: height // 2] = 255 * (noise[: height // 2] > 127)  # overshoots at edges are clipped
    expected = squash(Image.fromarray(noise[:, :, :3].copy()), size)
    assert np.array_equal(pixels_of(scripts(SQUASH, b64(noise.tobytes()), width, height, size), size), expected)


@pytest.mark.skipif(int(PIL.__version__.partition(".")[0]) < 13, reason="older versions begin with the other axis")
@pytest.mark.parametrize(
    ("width", "height"), [(40, 90), (64, 65), (70, 76), (70, 77), (100, 136), (100, 137), (80, 900)]
)
def test_the_axis_that_shrinks_most_is_resampled_first_where_pillow_does_so(scripts: Any, width: int, height: int):
    noise = np.random.default_rng(height).integers(0, 256, (height, width, 4), np.uint8)
    expected = squash(Image.fromarray(noise[:, :, :3].copy()), 64)
    assert np.array_equal(pixels_of(scripts(SQUASH, b64(noise.tobytes()), width, height, 64), 64), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "WEBP", "PNG"])
def test_a_photo_is_upright_for_every_orientation(scripts: Any, format: str, orientation: int):
    image = Image.open(EXAMPLES / "cat.jpg")
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(image, format, exif=exif, **({"lossless": True} if format == "WEBP" else {}))
    assert load_for_model(data, SIZE)[0].frame.orientation == orientation
    assert np.array_equal(read(scripts, data), load_for_model(data, SIZE)[1])


@pytest.mark.parametrize("byte_order", ["little", "big"])
def test_both_byte_orders_of_exif_are_understood(scripts: Any, byte_order: str):
    kind, order = (b"II*\0\x08\0\0\0", "little") if byte_order == "little" else (b"MM\0*\0\0\0\x08", "big")
    number = lambda value, length: value.to_bytes(length, order)  # noqa: E731
    entry = number(0x0112, 2) + number(3, 2) + number(1, 4) + number(6, 2) + b"\0\0"
    exif = b"Exif\0\0" + kind + number(1, 2) + entry + number(0, 4)
    data = encoded(Image.open(EXAMPLES / "cat.jpg"), "JPEG", exif=exif)
    expected = load_for_model(data, SIZE)
    assert expected[0].frame.orientation == 6
    assert np.array_equal(read(scripts, data), expected[1])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_are_white(scripts: Any, mode: str):
    generator = np.random.default_rng(1)
    image = Image.fromarray(generator.integers(0, 256, (90, 120, 4), np.uint8)).convert(mode)
    data = encoded(image, "PNG", **({"transparency": 0} if mode == "P" else {}))
    difference = np.abs(read(scripts, data).astype(int) - load_for_model(data, SIZE)[1])
    assert difference.max() <= 2  # browsers multiply colors by their alpha, and round


@pytest.mark.parametrize(
    ("format", "mode"),
    [("PNG", "RGB"), ("PNG", "L"), ("PNG", "1"), ("GIF", "P"), ("BMP", "RGB"), ("WEBP", "RGB"), ("JPEG", "L")],
)
def test_other_formats_and_modes_have_pillows_pixels(scripts: Any, format: str, mode: str):
    image = Image.open(EXAMPLES / "dog.jpg").convert(mode)
    data = encoded(image, format, **({"lossless": True} if format == "WEBP" else {}))
    assert np.array_equal(read(scripts, data), load_for_model(data, SIZE)[1])


def large_jpeg(size: int, factor: int, mode: str = "RGB", **options: Any) -> bytes:
    """The smallest photo that is reduced by this factor, with sides that are no multiples of a block."""
    side = math.ceil(DRAFT * size) * factor
    photo = Image.open(EXAMPLES / "coffee.jpg").resize((side + 37, side + 5)).convert(mode)
    return encoded(photo, "JPEG", **{"quality": 92, **options})


KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": "4:4:4"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:2:0": {"subsampling": "4:2:0"},
    "grey": {"mode": "L"},
    "progressive": {"progressive": True},
    "progressive grey": {"progressive": True, "mode": "L", "quality": 60},
    "restart markers": {"restart_marker_blocks": 7},
    "own codes": {"optimize": True, "quality": 98},
    "coarse": {"quality": 5},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_large_jpeg_has_the_pixels_of_pillows_reduced_decoding(scripts: Any, tmp_path: Path, factor: int, kind: str):
    data = large_jpeg(32, factor, **KINDS[kind])
    (tmp_path / "photo.jpg").write_bytes(data)
    assert np.array_equal(read(scripts, data, 32), load_for_model(tmp_path / "photo.jpg", 32)[1])


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_a_large_jpeg_with_chroma_of_half_the_height_has_pillows_pixels(scripts: Any, tmp_path: Path, factor: int):
    """Pillow writes no such file, but one with chroma of half the width becomes one by another header."""
    side = 64 * factor
    photo = Image.open(EXAMPLES / "coffee.jpg").resize((2 * side, side))
    data = bytearray(encoded(photo, "JPEG", subsampling="4:2:2"))
    frame = data.index(b"\xff\xc0")
    assert data[frame + 11] == 0x21
    data[frame + 5 : frame + 9] = (2 * side).to_bytes(2, "big") + side.to_bytes(2, "big")  # height and width
    data[frame + 11] = 0x12
    (tmp_path / "photo.jpg").write_bytes(data)
    assert np.array_equal(read(scripts, bytes(data), 32), load_for_model(tmp_path / "photo.jpg", 32)[1])


def test_a_damaged_large_jpeg_is_left_to_the_browser(scripts: Any):
    """The decoder ends with its own exception, and soon."""
    generator, whole = random.Random(0), [large_jpeg(32, 8, progressive=progressive) for progressive in (False, True)]
    cases = []
    for _ in range(60):
        data = bytearray(generator.choice(whole))
        for _ in range(generator.choice([1, 1, 5])):
            data[generator.randrange(2, len(data))] = generator.randrange(256)
        cases.append(b64(bytes(data[: generator.choice([len(data), len(data), generator.randrange(2, len(data))])])))
    script = (
        BYTES
        + """const { jpegCoefficients } = await import("./jpeg_coefficients.js");
return args[0].map((text) => {
  try {
    return jpegCoefficients(bytes(text)).components.length;
  } catch (error) {
    return error.constructor.name;
  }
});"""
    )
    results = scripts(script, cases)
    assert set(results) <= {1, 3, "UnusualJpeg"} and results.count("UnusualJpeg") > 5


@pytest.mark.parametrize("kind", ["CMYK", "RGB"])
def test_an_unusual_large_jpeg_has_nearly_the_pixels_of_pillow(scripts: Any, tmp_path: Path, kind: str):
    """It is left to the browser, and its pixels are averaged."""
    data = large_jpeg(32, 4, "CMYK") if kind == "CMYK" else large_jpeg(32, 4, keep_rgb=True)
    (tmp_path / "photo.jpg").write_bytes(data)
    difference = np.abs(read(scripts, data, 32).astype(int) - load_for_model(tmp_path / "photo.jpg", 32)[1])
    assert difference.mean() < 1 and difference.max() <= 12


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "photo is empty"),
        (b"no picture at all", "photo can't be read as a photo"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", "photo can't be read as a photo"),
        (b"\0\0\0\x18ftypheic\0\0\0\0heic", "photo is a HEIC file, which this browser can't read"),
        (b"II*\0" + bytes(60), "photo is a TIFF or raw file"),
        (encoded(Image.new("RGB", (40, 30)), "PNG")[:50], "photo can't be read as a photo"),
    ],
)
def test_a_file_that_is_no_photo_gives_a_sentence(scripts: Any, data: bytes, sentence: str):
    with pytest.raises(RuntimeError, match=sentence):
        scripts(READ, b64(data), 64)


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_a_picture_with_too_many_pixels_is_refused(scripts: Any, format: str):
    with pytest.raises(RuntimeError, match="photo has 40 x 30 pixels, more than this page reads"):
        scripts(READ, b64(encoded(Image.new("RGB", (40, 30)), format)), 64, 1199)


def test_erased_cells_have_the_color_that_python_gives_them(scripts: Any):
    size, rows, cols = 50, 7, 3
    pixels = np.random.default_rng(4).integers(0, 256, (size, size, 3), np.uint8)
    cells = [(0, 0), (6, 2), (3, 1)]
    cover = np.zeros((rows, cols), np.bool_)
    cover[tuple(zip(*cells, strict=True))] = True
    erased = scripts(ERASE, b64(pixels.tobytes()), size, rows, cols, cells)
    assert np.array_equal(pixels_of(erased, size), blank(pixels, cover))
