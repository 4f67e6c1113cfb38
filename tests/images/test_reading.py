"""Pictures as people have them: every format, depth and mode is read as what a viewer would show."""

from __future__ import annotations

import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from captioner.errors import CaptionerError
from captioner.images.reading import Frame, from_bytes, load, read, squash

RED, GREEN, BLUE, WHITE = (220, 20, 30), (20, 200, 40), (30, 40, 210), (255, 255, 255)


def quadrants(width: int = 64, height: int = 48) -> np.ndarray:
    """Red and green above, blue and white below."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, : width // 2], pixels[: height // 2, width // 2 :] = RED, GREEN
    pixels[height // 2 :, : width // 2], pixels[height // 2 :, width // 2 :] = BLUE, WHITE
    return pixels


def corners(image) -> list[tuple[int, ...]]:
    pixels = np.asarray(image)
    h, w = pixels.shape[:2]
    return [tuple(pixels[y, x]) for y in (h // 4, 3 * h // 4) for x in (w // 4, 3 * w // 4)]


def near(found, truth, tolerance: int = 12) -> bool:
    return bool(np.abs(np.array(found, int) - np.array(truth, int)).max() <= tolerance)


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
def test_colours_survive_every_format_and_mode(tmp_path, suffix, mode, options):
    path = tmp_path / f"picture{suffix}"
    whole = Image.fromarray(quadrants())
    (whole.quantize(16) if mode == "P" else whole.convert(mode)).save(path, **options)
    image, frame = read(path)
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
    for least in (None, 8):
        image, frame = read(tmp_path / "turned.jpg", least=least)
        assert near(corners(image), [RED, GREEN, BLUE, WHITE], 30)
        assert frame == Frame(64, 48, orientation)


def test_a_senseless_orientation_is_none(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 77
    Image.fromarray(quadrants()).save(tmp_path / "odd.jpg", exif=exif)
    assert read(tmp_path / "odd.jpg")[1] == Frame(64, 48, 1)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_becomes_white(tmp_path, mode):
    image = Image.new("RGBA", (8, 8), (10, 10, 10, 255))
    image.paste((10, 10, 10, 0), (0, 0, 4, 8))
    if mode == "P":
        flat = Image.new("P", (8, 8), 1)
        flat.putpalette([200, 0, 200, 10, 10, 10])
        flat.paste(0, (0, 0, 4, 8))
        flat.save(tmp_path / "clear.png", transparency=0)
    else:
        image.convert(mode).save(tmp_path / "clear.png")
    pixels = np.asarray(read(tmp_path / "clear.png")[0])
    assert tuple(pixels[4, 1]) == WHITE and tuple(pixels[4, 6]) == (10, 10, 10)


def test_half_transparent_is_mixed_with_white(tmp_path):
    Image.new("RGBA", (4, 4), (0, 0, 0, 128)).save(tmp_path / "half.png")
    assert near(np.asarray(read(tmp_path / "half.png")[0])[0, 0], (127, 127, 127), 1)


@pytest.mark.parametrize(
    ("values", "suffix", "shown"),
    [
        (np.array([[0, 32768], [65535, 257]], np.uint16), ".png", [[0, 128], [255, 1]]),
        (np.array([[0, 32768], [65535, 257]], np.uint16), ".tif", [[0, 128], [255, 1]]),
        (np.array([[0.0, 0.5], [1.0, 0.25]], np.float32), ".tif", [[0, 128], [255, 64]]),
        (np.array([[0, 1000], [4000, 2000]], np.float32), ".tif", [[0, 64], [255, 128]]),
        (np.array([[0, 2**30], [2**31 - 1, 2**29]], np.int32), ".tif", [[0, 128], [255, 64]]),
    ],
)
def test_deep_grey_is_scaled_and_not_clipped(tmp_path, values, suffix, shown):
    Image.fromarray(values).save(tmp_path / f"deep{suffix}")
    pixels = np.asarray(read(tmp_path / f"deep{suffix}")[0])
    assert np.abs(pixels.astype(int) - np.array(shown)[:, :, None]).max() <= 1


def test_grey_and_black_and_white_are_read(tmp_path):
    for mode in ("L", "1"):
        Image.fromarray(np.array([[0, 255]], np.uint8)).convert(mode).save(tmp_path / "grey.png")
        assert np.asarray(read(tmp_path / "grey.png")[0]).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    frames = [Image.new("RGB", (20, 10), colour) for colour in (RED, GREEN)]
    for name in ("moving.gif", "moving.webp", "pages.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
        assert near(np.asarray(read(tmp_path / name)[0])[5, 5], RED)


def test_a_huge_jpeg_is_decoded_smaller_and_the_frame_keeps_its_size(tmp_path):
    Image.fromarray(quadrants(4000, 3000)).save(tmp_path / "large.jpg", quality=90)
    image, frame = read(tmp_path / "large.jpg", least=512)
    assert frame == Frame(4000, 3000)
    assert min(image.size) >= 512 and max(image.size) <= 1024
    picture, pixels = load(tmp_path / "large.jpg", 256)
    assert pixels.shape == (256, 256, 3)
    assert near(corners(pixels), [RED, GREEN, BLUE, WHITE])
    assert picture.open().size == (4000, 3000)


def test_draft_decoding_hardly_changes_the_models_pixels(tmp_path):
    y, x = np.mgrid[0:1500, 0:2000]
    waves = np.stack([128 + 100 * np.sin(x / 90 + i) * np.cos(y / 70) for i in range(3)], -1).astype(np.uint8)
    Image.fromarray(waves).save(tmp_path / "waves.jpg", quality=95)
    whole = squash(read(tmp_path / "waves.jpg")[0], 128)
    draft = load(tmp_path / "waves.jpg", 128)[1]
    assert np.abs(whole.astype(int) - draft).mean() < 1.5


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
        read(tmp_path / "bomb.png")


def test_the_pixel_limit_can_be_moved_and_pillows_own_is_left_alone(tmp_path, monkeypatch):
    Image.fromarray(quadrants(100, 100)).save(tmp_path / "small.png")
    with pytest.raises(CaptionerError, match="limit of 9,999 pixels"):
        read(tmp_path / "small.png", pixel_limit=9_999)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow itself would refuse it now
    assert read(tmp_path / "small.png", pixel_limit=10_000)[1] == Frame(100, 100)
    assert Image.MAX_IMAGE_PIXELS == 1000


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"hello, I am no picture", "not a picture that can be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not a picture that can be read"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "cannot be read|not a picture"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_name(tmp_path, content, said):
    (tmp_path / "thing.jpg").write_bytes(content)
    with pytest.raises(CaptionerError, match=said) as raised:
        read(tmp_path / "thing.jpg")
    assert "thing.jpg" in str(raised.value)


def test_a_file_cut_short_is_refused(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(CaptionerError, match=r"cut\.jpg: cannot be read .*truncated"):
        read(tmp_path / "cut.jpg")


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(CaptionerError, match="no such file"):
        read(tmp_path / "nothing.jpg")
    with pytest.raises(CaptionerError, match="a folder, not a picture"):
        read(tmp_path)


def test_a_wrong_suffix_does_not_matter(tmp_path):
    Image.fromarray(quadrants()).save(tmp_path / "picture.png")
    (tmp_path / "picture.png").rename(tmp_path / "picture.jpg")
    assert near(corners(read(tmp_path / "picture.jpg")[0]), [RED, GREEN, BLUE, WHITE])


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.full((2, 2), 7, np.uint8), 7),
        (np.full((2, 2, 1), 7, np.uint8), 7),
        (np.full((2, 2, 3), 0.5), 128),
        (np.full((2, 2, 3), 32896, np.uint16), 128),
        (np.full((2, 2, 3), 9, np.int64), 9),
        (np.full((2, 2), True), 255),
        (np.full((2, 2, 4), (9, 9, 9, 0), np.uint8), 255),
    ],
)
def test_arrays_of_every_kind_are_pictures(array, shown):
    assert (np.asarray(read(array)[0]) == shown).all()


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 2, 2), np.uint8), r"shape \(2, 2, 2\)"),
        (np.zeros((0, 2, 3), np.uint8), "not a picture"),
        (np.full((2, 2, 3), 200.0), r"floats must lie in 0\.\.1"),
        (np.full((2, 2, 3), np.nan), r"floats must lie in 0\.\.1"),
        (np.full((2, 2, 3), 300), "whole numbers"),
    ],
)
def test_an_array_that_is_no_picture_is_named(array, said):
    with pytest.raises(CaptionerError, match=said):
        read(array)


def test_a_pillow_image_of_the_caller_is_left_as_it_was(tmp_path):
    Image.fromarray(quadrants(2000, 1000)).save(tmp_path / "mine.jpg")
    with Image.open(tmp_path / "mine.jpg") as mine:
        picture, _ = load(mine, 64)
        assert mine.size == (2000, 1000)
        assert picture.open().size == (2000, 1000)


def test_bytes_are_read_as_a_file_is(tmp_path):
    data = io.BytesIO()
    Image.fromarray(quadrants(2000, 1000)).save(data, "JPEG")
    (tmp_path / "same.jpg").write_bytes(data.getvalue())
    picture, pixels = from_bytes(data.getvalue(), 64, name="sent.jpg")
    assert np.array_equal(pixels, load(tmp_path / "same.jpg", 64)[1])
    assert picture.name == "sent.jpg" and picture.open().size == (2000, 1000)
    for wrong in (b"", b"nothing"):
        with pytest.raises(CaptionerError, match=r"sent\.jpg"):
            from_bytes(wrong, 64, name="sent.jpg")


def test_cells_tile_the_upright_picture_and_hold_their_own_pixels():
    frame = Frame(101, 53)
    cells = [frame.cell(row, col, 3, 5) for row in range(3) for col in range(5)]
    assert sum((right - left) * (bottom - top) for left, top, right, bottom in cells) == pytest.approx(101 * 53)
    for i, (left, top, right, bottom) in enumerate(cells):
        assert frame.place((left + right) / 2, (top + bottom) / 2, 3, 5) == divmod(i, 5)
    assert frame.place(101, 53, 3, 5) == (2, 4)


def test_many_threads_read_at_once(tmp_path):
    Image.fromarray(quadrants(300, 200)).save(tmp_path / "one.jpg")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: load(tmp_path / "one.jpg", 32)[1], range(64)))
    assert all(np.array_equal(each, found[0]) for each in found)
