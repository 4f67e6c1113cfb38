"""Captions with known attention maps, so that tests of overlays need no model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captioner.caption import Caption, Word
from captioner.images.frame import Frame
from captioner.images.reading import Picture


def one_cell(row: int, col: int, rows: int, cols: int) -> NDArray[np.float32]:
    """All weight in one cell."""
    alpha = np.zeros((rows, cols), np.float32)
    alpha[row, col] = 1
    return alpha


def flat(rows: int, cols: int) -> NDArray[np.float32]:
    return np.full((rows, cols), 1 / (rows * cols), np.float32)


def blob(row: float, col: float, rows: int, cols: int, width: float = 0.8) -> NDArray[np.float32]:
    """Attention with a round peak at a cell."""
    y, x = np.mgrid[:rows, :cols]
    hill = np.exp(-((y - row) ** 2 + (x - col) ** 2) / (2 * width**2)) + 0.01
    return (hill / hill.sum()).astype(np.float32)


def picture(width: int = 60, height: int = 40, name: str = "photos/dog.jpg") -> Picture:
    """A picture with a smooth pattern, in memory."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([120 + 60 * np.sin(x / 9), 120 + 50 * np.cos(y / 7), 100 + 0 * x], axis=-1)
    return Picture(name, Frame(width, height), None, Image.fromarray(pixels.astype(np.uint8)))


def caption(
    text: str = "a dog runs",
    *,
    grid: tuple[int, int] = (4, 6),
    size: tuple[int, int] = (60, 40),
    name: str = "photos/dog.jpg",
    hard: bool = False,
    alternatives: Sequence[str] = (),
    of: Picture | None = None,
) -> Caption:
    """A caption whose words attend to one cell after another, in reading order."""
    rows, cols = grid
    of = of or picture(*size, name=name)
    words = []
    for i, word in enumerate(text.split()):
        row, col = divmod(i % (rows * cols), cols)
        words.append(
            Word(
                word,
                float(np.log(0.9 - 0.05 * (i % 10))),
                blob(row, col, rows, cols),
                gate=0.3 + 0.05 * (i % 10),
                cell=(row, col) if hard else None,
            )
        )
    others = tuple(caption(other, grid=grid, hard=hard, of=of) for other in alternatives)
    return Caption(tuple(words), Word("<end>", -0.2, flat(rows, cols)), -0.75, of, others)
