"""Maps a grid of attention weights to the pixels of the upright picture.

Weights are drawn as *density*: the weight of a cell times the number of cells. 1 is an even spread over the picture,
so densities on grids of different sizes can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from captioner.images.frame import Frame

Map = NDArray[np.float32]  # (rows, cols) of weights, or (height, width) of densities

_STRIP = 4_000_000  # pixels computed at a time, to keep the memory small for huge pictures


def density(alpha: Map) -> Map:
    """Weights as multiples of an even spread."""
    return np.asarray(alpha * np.float32(alpha.size), dtype=np.float32)


def peak(alphas: list[Map]) -> float:
    """The highest density of several maps."""
    return max((float(density(alpha).max()) for alpha in alphas if alpha.size), default=1.0)


def project(values: Map, width: int, height: int, *, grid: bool = False) -> Map:
    """The value at every pixel of a picture of this size, (height, width). `grid` shows cells as they are."""
    return np.concatenate([strip for _, strip in strips(values, width, height, grid=grid)])


def strips(values: Map, width: int, height: int, *, grid: bool = False) -> Iterator[tuple[int, Map]]:
    """As `project`, in strips of some rows of pixels, each with the number of its first row."""
    rows, cols = values.shape
    down = _shares(rows, height, grid)  # (height, rows)
    across = np.asarray(values, np.float32) @ _shares(cols, width, grid).T  # (rows, width)
    step = max(1, _STRIP // width)
    for top in range(0, height, step):
        yield top, down[top : top + step] @ across


def _shares(cells: int, pixels: int, grid: bool) -> Map:
    """The share of each cell at each pixel of a line, (pixels, cells).

    A pixel at the centre of a cell shows that cell alone. Between two centres the value changes smoothly from one cell
    to the other (smoothstep) and never exceeds them. At the edge of two cells both have the same share.
    """
    shares = np.zeros((pixels, cells), np.float32)
    indices = np.arange(pixels)
    position = (indices + 0.5) * cells / pixels  # of the centre of the pixel, in cells
    if grid:
        shares[indices, np.minimum(position.astype(int), cells - 1)] = 1
        return shares
    before = np.floor(position - 0.5)
    t = position - 0.5 - before
    t = t * t * (3 - 2 * t)
    np.add.at(shares, (indices, np.clip(before, 0, cells - 1).astype(int)), 1 - t)
    np.add.at(shares, (indices, np.clip(before + 1, 0, cells - 1).astype(int)), t)
    return shares


def cells(frame: Frame, rows: int, cols: int) -> NDArray[np.float64]:
    """The rectangle of every cell in the upright picture, (rows, cols, 4)."""
    return np.array([[frame.cell(row, col, rows, cols) for col in range(cols)] for row in range(rows)])
