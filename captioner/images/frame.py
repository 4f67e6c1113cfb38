"""Frame: the size and EXIF orientation of a picture, and what follows from them for cells and boxes.

Cameras store a picture as the sensor saw it and add an EXIF orientation. Everything here is in pixels of the upright
picture, except where a name says "stored".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image

Box = tuple[float, float, float, float]  # left, top, right, bottom


class Orientation(NamedTuple):
    """The way from stored to upright pixels: mirror, then swap rows and columns."""

    mirror_x: bool  # left and right change sides
    mirror_y: bool  # top and bottom change sides
    swap: bool
    pillow: Image.Transpose | None  # Pillow's name for all of it together


# By the value of the EXIF tag.
ORIENTATIONS = {
    1: Orientation(False, False, False, None),
    2: Orientation(True, False, False, Image.Transpose.FLIP_LEFT_RIGHT),
    3: Orientation(True, True, False, Image.Transpose.ROTATE_180),
    4: Orientation(False, True, False, Image.Transpose.FLIP_TOP_BOTTOM),
    5: Orientation(False, False, True, Image.Transpose.TRANSPOSE),
    6: Orientation(False, True, True, Image.Transpose.ROTATE_270),
    7: Orientation(True, True, True, Image.Transpose.TRANSVERSE),
    8: Orientation(True, False, True, Image.Transpose.ROTATE_90),
}


@dataclass(frozen=True)
class Frame:
    """Size of the upright picture, and its EXIF orientation in the file."""

    width: int
    height: int
    orientation: int = 1

    @classmethod
    def of_stored(cls, width: int, height: int, orientation: int) -> Frame:
        """The frame of a file that stores width x height pixels."""
        return cls(height, width, orientation) if ORIENTATIONS[orientation].swap else cls(width, height, orientation)

    @property
    def turned(self) -> bool:
        """Whether the file stores the picture lying on its side."""
        return ORIENTATIONS[self.orientation].swap

    @property
    def stored_size(self) -> tuple[int, int]:
        """Width and height of the pixels in the file."""
        return (self.height, self.width) if self.turned else (self.width, self.height)

    def cell(self, row: int, col: int, rows: int, cols: int) -> Box:
        """The rectangle of a grid cell."""
        return (
            col * self.width / cols,
            row * self.height / rows,
            (col + 1) * self.width / cols,
            (row + 1) * self.height / rows,
        )

    def stored_box(self, box: Box) -> Box:
        """A box of the upright picture, in stored pixels."""
        left, top, right, bottom = box
        mirror_x, mirror_y, swap, _ = ORIENTATIONS[self.orientation]
        width, height = self.stored_size
        if swap:
            left, top, right, bottom = top, left, bottom, right
        return _mirrored((left, top, right, bottom), mirror_x, mirror_y, width, height)


def upright_box(box: Box, orientation: int, width: float, height: float) -> Box:
    """A box in stored pixels (width x height), in the upright picture."""
    mirror_x, mirror_y, swap, _ = ORIENTATIONS[orientation]
    left, top, right, bottom = _mirrored(box, mirror_x, mirror_y, width, height)
    return (top, left, bottom, right) if swap else (left, top, right, bottom)


def _mirrored(box: Box, mirror_x: bool, mirror_y: bool, width: float, height: float) -> Box:
    left, top, right, bottom = box
    if mirror_x:
        left, right = width - right, width - left
    if mirror_y:
        top, bottom = height - bottom, height - top
    return left, top, right, bottom
