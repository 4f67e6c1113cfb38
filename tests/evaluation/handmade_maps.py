"""Captions with attention maps that are written out by hand, for the tests of this folder."""

from __future__ import annotations

import numpy as np

from captioner.caption import Caption, Word

LEFT, RIGHT, EVEN = [[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]


def word(text: str, alpha: list[list[float]] | np.ndarray, cell: tuple[int, int] | None = None) -> Word:
    return Word(text, -0.1, np.asarray(alpha, np.float32), cell=cell)


def caption(*words: Word) -> Caption:
    end = Word("<end>", -0.1, np.full(words[0].alpha.shape, 7.0, np.float32)) if words else None  # never to be counted
    return Caption(words, end, -1.0)
