"""Which cells of an annotation grid boxes cover, and how much of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captioner.data.caption_set import Box
from captioner.images.frame import Frame


def coverage(boxes: Sequence[Box], frame: Frame, rows: int, cols: int) -> NDArray[np.float64]:
    """The exact share of each cell's area that the boxes cover together: (rows, cols), 0 to 1."""
    across = _edges([edge for box in boxes for edge in (box.left, box.right)], frame.width, cols)
    down = _edges([edge for box in boxes for edge in (box.top, box.bottom)], frame.height, rows)
    # Between two neighbouring edges a box covers all or nothing.
    x, y = (across[1:] + across[:-1]) / 2, (down[1:] + down[:-1]) / 2
    area = np.outer(np.diff(down), np.diff(across))
    inside = np.zeros(area.shape, np.bool_)
    for box in boxes:
        inside |= np.outer((y > box.top) & (y < box.bottom), (x > box.left) & (x < box.right))
    cells = np.zeros((rows, cols))
    row = np.minimum((y * rows / frame.height).astype(int), rows - 1)
    col = np.minimum((x * cols / frame.width).astype(int), cols - 1)
    np.add.at(cells, (row[:, None], col[None, :]), area * inside)
    return cells / (frame.width / cols * frame.height / rows)


def _edges(boxes: list[float], length: int, cells: int) -> NDArray[np.float64]:
    """Sorted edges of boxes and cells along one side of the picture."""
    lines = [*np.clip(boxes, 0, length), *(np.arange(cells + 1) * length / cells)]
    return np.unique(np.asarray(lines, np.float64))


def cell_centers_in_boxes(boxes: Sequence[Box], frame: Frame, rows: int, cols: int) -> NDArray[np.bool_]:
    """Which cells have their center inside a box: (rows, cols)."""
    x = (np.arange(cols) + 0.5) * frame.width / cols
    y = (np.arange(rows) + 0.5) * frame.height / rows
    inside = np.zeros((rows, cols), np.bool_)
    for box in boxes:
        inside |= np.outer((y >= box.top) & (y < box.bottom), (x >= box.left) & (x < box.right))
    return inside
