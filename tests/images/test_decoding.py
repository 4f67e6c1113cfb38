"""Picture files as people have them: formats, orientation, limits, and the same answer from the header alone."""

from __future__ import annotations

import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from captioner.errors import CaptionerError
from captioner.images.decoding import inspect, is_picture
from captioner.images.frame import Frame
from captioner.images.limits import Limits
from captioner.images.reading import load_for_model, read_image
from tests.images.quadrants import BLUE, GREEN, RED, WHITE, corners, near, quadrants


@pytest.mark.parametrize(
    ("suffix", "mode", "options"),
    [
        (".jpg", "RGB", {"quality": 95}),
        (".jpg", "CMYK", {"quality": 95}),
        (".png", "RGB", {}),
        (".png", "RGBA", {}),
        (".png", "P", {}),
        (".webp", "RGB", {"lossless": True}),
        (".webp", "RGBA", {"lossless": True}),
        (".gif", "P", {}),
        (".bmp", "RGB", {}),
        (".tif", "RGB", {}),
        (".tiff", "CMYK", {}),
        (".tif", "P", {}),
        (".avif", "RGB", {"quality": 95}),
    ],
)
def test_every_format_and_mode_is_read_with_its_colors(tmp_path, suffix, mode, options):
    path = tmp_path / f"picture{suffix}"
    whole = Image.fromarray(quadrants())
    (whole.quantize(16) if mode == "P" else whole.convert(mode)).save(path, **options)
    image, frame = read_image(path)
    assert image.mode == "RGB"
    assert frame == Frame(64, 48)
    assert near(corners(image), [RED, GREEN, BLUE, WHITE], 40 if mode == "CMYK" else 12)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path, orientation):
    upright = quadrants()
    # How a camera stores the upright picture for each tag, by the EXIF standard's table of rows and columns.
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "turned.jpg", quality=95, exif=exif)
    for min_side in (None, 8):
        image, frame = read_image(tmp_path / "turned.jpg", min_side=min_side)
        assert near(corners(image), [RED, GREEN, BLUE, WHITE], 30)
        assert frame == Frame(64, 48, orientation)


def test_an_unknown_orientation_is_ignored(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 77
    Image.fromarray(quadrants()).save(tmp_path / "odd.jpg", exif=exif)
    assert read_image(tmp_path / "odd.jpg")[1] == Frame(64, 48, 1)


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("RGB", (20, 10), colour) for colour in (RED, GREEN)]
    for name in ("moving.gif", "moving.webp", "pages.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert near(np.asarray(read_image(tmp_path / name)[0])[5, 5], RED)


def test_a_huge_jpeg_is_decoded_smaller_and_the_frame_keeps_its_size(tmp_path):
    Image.fromarray(quadrants(4000, 3000)).save(tmp_path / "large.jpg", quality=90)
    image, frame = read_image(tmp_path / "large.jpg", min_side=512)
    assert frame == Frame(4000, 3000)
    assert min(image.size) >= 512 and max(image.size) <= 1024
    picture, pixels = load_for_model(tmp_path / "large.jpg", 256)
    assert pixels.shape == (256, 256, 3)
    assert near(corners(pixels), [RED, GREEN, BLUE, WHITE])
    assert picture.open().size == (4000, 3000)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises a huge picture."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def test_a_bomb_is_refused_from_its_header(tmp_path):
    (tmp_path / "bomb.png").write_bytes(bomb(100_000, 100_000))
    with pytest.raises(
        CaptionerError, match=r"100000x100000 is more than the limit of 200,000,000 pixels.*--pixel-limit"
    ):
        read_image(tmp_path / "bomb.png")


def test_the_pixel_limit_can_be_moved_and_pillows_own_is_left_alone(tmp_path, monkeypatch):
    Image.fromarray(quadrants(100, 100)).save(tmp_path / "small.png")
    with pytest.raises(CaptionerError, match="limit of 9,999 pixels"):
        read_image(tmp_path / "small.png", limits=Limits(pixels=9_999))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow itself would refuse it now
    assert read_image(tmp_path / "small.png", limits=Limits(pixels=10_000))[1] == Frame(100, 100)
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello, I am no picture", "not a picture that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "EPS, not a photo; convert it"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "cannot be read|not a picture"),
    ],
)
def test_a_file_that_is_no_picture_is_refused_by_name(tmp_path, content, said):
    (tmp_path / "thing.jpg").write_bytes(content)
    with pytest.raises(CaptionerError, match=said) as raised:
        read_image(tmp_path / "thing.jpg")
    assert "thing.jpg" in str(raised.value)


def test_a_file_cut_short_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(CaptionerError, match=r"cut\.jpg: cannot be read .*truncated"):
        read_image(tmp_path / "cut.jpg")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(CaptionerError, match="no such file"):
        read_image(tmp_path / "nothing.jpg")
    with pytest.raises(CaptionerError, match="a folder, not a picture"):
        read_image(tmp_path)


def test_the_content_decides_the_format_and_not_the_suffix(tmp_path):
    Image.fromarray(quadrants()).save(tmp_path / "picture.png")
    (tmp_path / "picture.png").rename(tmp_path / "picture.jpg")
    assert near(corners(read_image(tmp_path / "picture.jpg")[0]), [RED, GREEN, BLUE, WHITE])


def test_many_threads_read_at_once(tmp_path):
    Image.fromarray(quadrants(300, 200)).save(tmp_path / "one.jpg")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: load_for_model(tmp_path / "one.jpg", 32)[1], range(64)))
    assert all(np.array_equal(each, found[0]) for each in found)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_header_alone_gives_the_frame_of_the_decoded_picture(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    for suffix in ("jpg", "png", "webp"):
        path = tmp_path / f"turned.{suffix}"
        Image.fromarray(quadrants()).save(path, exif=exif)
        assert inspect(path) == read_image(path)[1]


@pytest.mark.parametrize("content", [b"", b"no picture", bomb(100_000, 100_000), b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_the_header_alone_refuses_what_decoding_refuses_with_the_same_sentence(tmp_path, content):
    path = tmp_path / "thing.png"
    path.write_bytes(content)
    sentences = []
    for attempt in (inspect, read_image):
        with pytest.raises(CaptionerError) as raised:
            attempt(path)
        sentences.append(str(raised.value))
    assert sentences[0] == sentences[1]


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for attempt in (inspect, read_image):
        with pytest.raises(CaptionerError, match="not a regular file"):
            attempt(tmp_path / "pipe")
    assert not is_picture(tmp_path / "pipe")
