"""Frame: cells tile the picture, and boxes follow the EXIF orientation as Pillow turns pixels."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageOps

from captioner.images.frame import Frame, upright_box


def test_cells_tile_the_upright_picture():
    frame = Frame(101, 53)
    cells = [frame.cell(row, col, 3, 5) for row in range(3) for col in range(5)]
    assert sum((right - left) * (bottom - top) for left, top, right, bottom in cells) == pytest.approx(101 * 53)
    assert cells[0][:2] == (0, 0) and cells[-1][2:] == (101, 53)
    assert all(a[2] == b[0] for a, b in pairwise(cells[:5]))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_turn_as_pillow_turns_pixels(orientation):
    """The truth is Pillow's: a white rectangle in the stored pixels, found again after exif_transpose."""
    stored = (16, 8, 56, 24)
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[stored[1] : stored[3], stored[0] : stored[2]] = 255
    image = Image.fromarray(pixels)
    image.getexif()[0x0112] = orientation
    turned = ImageOps.exif_transpose(image)
    frame = Frame.of_stored(64, 48, orientation)
    assert (frame.width, frame.height) == turned.size and frame.stored_size == (64, 48)
    box = turned.getbbox()
    assert box is not None and upright_box(stored, orientation, 64, 48) == box
    assert frame.stored_box(box) == stored
