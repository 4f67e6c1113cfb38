"""Replace cells of a picture by a blurred version, or by the mean color.

Blurred, what was there is gone, but no new edge or color appears.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from captioner.images.pixels import Pixels

RADIUS = 1 / 8  # of the blur, relative to the side of the picture: objects disappear, rough colors stay

Cover = NDArray[np.bool_]  # (rows, cols): the cells to replace


def blurred(pixels: Pixels) -> Pixels:
    """The whole picture, blurred beyond recognition."""
    radius = RADIUS * max(pixels.shape[:2])
    return np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(radius)))


def cover_cells(pixels: Pixels, replacement: Pixels, cover: Cover) -> Pixels:
    """The picture with the covered cells of a grid taken from another picture of the same size."""
    height, width, _ = pixels.shape
    rows, cols = cover.shape
    row = (np.arange(height) * rows) // height
    col = (np.arange(width) * cols) // width
    return np.where(cover[row[:, None], col[None, :], None], replacement, pixels)


def blank(pixels: Pixels, cover: Cover) -> Pixels:
    """The picture with the covered cells painted in its mean color."""
    color = np.rint(pixels.reshape(-1, 3).mean(0)).astype(np.uint8)
    return cover_cells(pixels, np.broadcast_to(color, pixels.shape), cover)
