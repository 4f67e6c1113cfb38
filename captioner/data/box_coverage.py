"""Which cells of an annotation grid boxes cover, and how much of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captioner.data.caption_set import Box
from captioner.images.frame import Frame


def coverage(boxes: Sequence[Box], frame: Frame, rows: int, cols: int) -> NDArray[np.float64]:
    """The exact share of each cell's area that the boxes cover together: (rows, cols), 0 to 1."""
    sides = np.array([(box.left, box.top, box.right, box.bottom) for box in boxes], np.float64).reshape(-1, 4)
    return relative_coverage(sides / (frame.width, frame.height, frame.width, frame.height), rows, cols)


def relative_coverage(boxes: NDArray[np.float64], rows: int, cols: int) -> NDArray[np.float64]:
    """The same for boxes (N, 4) as left, top, right, bottom in a picture with sides of 1."""
    down, in_rows = _strips(boxes[:, 1::2], rows)
    across, in_cols = _strips(boxes[:, ::2], cols)
    inside = (down.T @ across > 0).astype(np.float64)  # between two neighbouring edges boxes cover all or nothing
    cells: NDArray[np.float64] = in_rows @ inside @ in_cols.T
    return cells


def _strips(sides: NDArray[np.float64], cells: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The strips between all edges of boxes and cells along one axis; `sides` (N, 2) are the boxes' edges.

    Returns which boxes cover a strip (N, strips), and the share of each cell that a strip is (cells, strips).
    """
    edges = np.sort(np.concatenate([np.clip(sides, 0, 1).ravel(), np.arange(cells + 1) / cells]))
    middle = (edges[1:] + edges[:-1]) / 2
    covered = (middle > sides[:, :1]) & (middle < sides[:, 1:])
    shares = np.zeros((cells, len(middle)))
    strip = np.arange(len(middle))
    shares[np.minimum((middle * cells).astype(np.int64), cells - 1), strip] = np.diff(edges) * cells
    return covered.astype(np.float32), shares


def cell_centers_in_boxes(boxes: Sequence[Box], frame: Frame, rows: int, cols: int) -> NDArray[np.bool_]:
    """Which cells have their center inside a box: (rows, cols)."""
    x = (np.arange(cols) + 0.5) * frame.width / cols
    y = (np.arange(rows) + 0.5) * frame.height / rows
    inside = np.zeros((rows, cols), np.bool_)
    for box in boxes:
        inside |= np.outer((y >= box.top) & (y < box.bottom), (x >= box.left) & (x < box.right))
    return inside
