"""Pixels: from arrays and images of any mode to RGB, and from RGB to the square that a model sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captioner.errors import UsageError

Pixels = NDArray[np.uint8]  # (height, width, 3)

# Names the steps from a file to a model's pixels; it is part of the key of cached features.
TRANSFORM = "upright, rgb on white, squashed, bicubic (reducing gap 3)"

_CHANNELS = (1, 3, 4)
_BAND = 1 << 20  # pixels that are converted at a time


def squash(image: Image.Image, size: int) -> Pixels:
    """The whole picture as a (size, size, 3) square, the same in training and in captioning.

    Nothing is cropped, so a cell of the grid is a rectangle of the original.
    """
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image, dtype=np.uint8)


def to_rgb(image: Image.Image) -> Image.Image:
    """RGB. Transparent parts become white; grey of 16 bits or of floats is scaled to 8 bits, not clipped."""
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bits(image)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        rgb = Image.new("RGB", rgba.size, (255, 255, 255))
        rgb.paste(rgba, mask=rgba.getchannel("A"))
        return rgb
    return image.convert("RGB")


def image_from_array(array: NDArray[Any], *, channels_first: bool = False) -> Image.Image:
    """An array as an image: (height, width), (height, width, channels) or (channels, height, width).

    Where both orders of the axes are possible, `channels_first` decides.
    """
    array = _channels_last(array, channels_first)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif np.issubdtype(array.dtype, np.floating):
        if not (array.min() >= 0 and array.max() <= 1):  # False for NaN, too
            raise UsageError("an array of floats must have values in 0..1; for 0..255 pass uint8")
        array = (array * 255 + 0.5).astype(np.uint8)
    elif array.dtype == np.uint16:
        array = (array // 257).astype(np.uint8)
    elif array.dtype != np.uint8:
        if not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() > 255:
            raise UsageError(f"an array of {array.dtype} must have whole numbers in 0..255")
        array = array.astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(array))


def _channels_last(array: NDArray[Any], channels_first: bool) -> NDArray[Any]:
    """(height, width) or (height, width, 3 or 4)."""
    if array.ndim == 3:
        first, last = array.shape[0] in _CHANNELS, array.shape[2] in _CHANNELS
        if first and (channels_first or not last):
            array = np.moveaxis(array, 0, 2)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in _CHANNELS) or not array.size:
        raise UsageError(
            f"an array of shape {tuple(array.shape)} is not a picture; pass (height, width), (height, width, channels) "
            "or (channels, height, width) with 1, 3 or 4 channels"
        )
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _to_8_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Grey of any depth as bytes. Files don't always state the depth, so the largest value decides."""
    width, height = image.size
    grey = np.empty((height, width), np.uint8)
    rows = max(1, _BAND // width)
    largest = max(float(values.max()) for _, values in _bands(image, rows))
    if image.mode == "F":
        scale = 255.0 if largest <= 1 else 1.0 if largest <= 255 else 255 / largest
    else:
        scale = 1.0 if largest <= 255 else 1 / 257 if largest <= 65535 else 255 / largest
    for top, values in _bands(image, rows):
        grey[top : top + len(values)] = np.clip(values * scale + 0.5, 0, 255).astype(np.uint8)
    return grey


def _bands(image: Image.Image, rows: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The values of some rows at a time: all at once would take eight times the memory of the picture."""
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        yield top, np.nan_to_num(np.asarray(band).astype(np.float32))
