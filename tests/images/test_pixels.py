"""Pixels: every mode, depth and layout becomes the RGB that a viewer would show."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UsageError
from captioner.images.pixels import image_from_array, squash
from captioner.images.reading import load_for_model, read_image
from tests.images.quadrants import WHITE, near, quadrants


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_become_white(tmp_path, mode):
    image = Image.new("RGBA", (8, 8), (10, 10, 10, 255))
    image.paste((10, 10, 10, 0), (0, 0, 4, 8))
    if mode == "P":
        flat = Image.new("P", (8, 8), 1)
        flat.putpalette([200, 0, 200, 10, 10, 10])
        flat.paste(0, (0, 0, 4, 8))
        flat.save(tmp_path / "clear.png", transparency=0)
    else:
        image.convert(mode).save(tmp_path / "clear.png")
    pixels = np.asarray(read_image(tmp_path / "clear.png")[0])
    assert tuple(pixels[4, 1]) == WHITE and tuple(pixels[4, 6]) == (10, 10, 10)


def test_half_transparent_is_mixed_with_white(tmp_path):
    Image.new("RGBA", (4, 4), (0, 0, 0, 128)).save(tmp_path / "half.png")
    assert near(np.asarray(read_image(tmp_path / "half.png")[0])[0, 0], (127, 127, 127), 1)


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
    pixels = np.asarray(read_image(tmp_path / f"deep{suffix}")[0])
    assert np.abs(pixels.astype(int) - np.array(shown)[:, :, None]).max() <= 1


def test_grey_and_black_and_white_are_read(tmp_path):
    for mode in ("L", "1"):
        Image.fromarray(np.array([[0, 255]], np.uint8)).convert(mode).save(tmp_path / "grey.png")
        assert np.asarray(read_image(tmp_path / "grey.png")[0]).tolist() == [[[0, 0, 0], [255, 255, 255]]]


def test_draft_decoding_hardly_changes_the_models_pixels(tmp_path):
    y, x = np.mgrid[0:1500, 0:2000]
    waves = np.stack([128 + 100 * np.sin(x / 90 + i) * np.cos(y / 70) for i in range(3)], -1).astype(np.uint8)
    Image.fromarray(waves).save(tmp_path / "waves.jpg", quality=95)
    whole = squash(read_image(tmp_path / "waves.jpg")[0], 128)
    draft = load_for_model(tmp_path / "waves.jpg", 128)[1]
    assert np.abs(whole.astype(int) - draft).mean() < 1.5


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
    assert (np.asarray(read_image(array)[0]) == shown).all()


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 2, 2), np.uint8), r"shape \(2, 2, 2\)"),
        (np.zeros((0, 2, 3), np.uint8), "not a picture"),
        (np.full((2, 2, 3), 200.0), r"floats must have values in 0\.\.1"),
        (np.full((2, 2, 3), np.nan), r"floats must have values in 0\.\.1"),
        (np.full((2, 2, 3), 300), "whole numbers"),
    ],
)
def test_an_array_that_is_no_picture_is_named(array, said):
    with pytest.raises(UsageError, match=said):
        read_image(array)


def test_channels_may_come_first_or_last():
    pixels = quadrants()
    for array in (pixels, np.moveaxis(pixels, 2, 0)):
        assert np.array_equal(np.asarray(image_from_array(array)), pixels)


def test_the_caller_decides_where_both_orders_of_the_axes_are_possible():
    array = np.arange(3 * 5 * 3, dtype=np.uint8).reshape(3, 5, 3)
    assert np.array_equal(np.asarray(image_from_array(array)), array)
    assert np.array_equal(np.asarray(image_from_array(array, channels_first=True)), np.moveaxis(array, 0, 2))
