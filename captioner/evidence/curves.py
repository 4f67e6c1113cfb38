"""Deletion and insertion curves: a word's probability while the picture is blurred, or uncovered, cell by cell.

Cells are taken in the order of the word's attention, most attended first, and as a control in random order. If the word
depends on the attended cells, its probability falls (deletion) or rises (insertion) earlier than in random order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Curves
from captioner.evidence.blurring import blurred, cover_cells
from captioner.evidence.occlusion import word_log_probabilities
from captioner.images.pixels import Pixels
from captioner.inference.backend import Backend
from captioner.inference.search import SearchOptions

STEPS = 8  # points of a curve after the first
RANDOM_ORDERS = 3


def curves(
    backend: Backend,
    pixels: Pixels,
    words: Sequence[int],
    alphas: Sequence[NDArray[np.float32]],
    measured: Sequence[int],
    options: SearchOptions,
    *,
    threads: int = 1,
    seed: int = 0,
) -> dict[int, Curves]:
    """The curves of some words of a caption, by their positions. `alphas` are the maps of all its words."""
    random = np.random.default_rng(seed)
    cells = backend.rows * backend.cols
    orders = [np.argsort(-alphas[position], axis=None, kind="stable") for position in measured]
    orders += [random.permutation(cells) for _ in range(RANDOM_ORDERS)]
    shares = np.linspace(0, 1, STEPS + 1)
    away = blurred(pixels)
    pictures = []
    for order in orders:
        for first, second in ((pixels, away), (away, pixels)):
            for share in shares:
                cover = np.zeros(cells, np.bool_)
                cover[order[: round(share * cells)]] = True
                pictures.append(cover_cells(first, second, cover.reshape(backend.rows, backend.cols)))
    table = np.exp(word_log_probabilities(backend, pictures, words, options, threads=threads))
    table = table.reshape(len(orders), 2, len(shares), len(words))
    controls = table[len(measured) :].mean(axis=0)
    return {
        position: Curves(
            shares,
            deletion=table[number, 0, :, position],
            insertion=table[number, 1, :, position],
            random_deletion=controls[0, :, position],
            random_insertion=controls[1, :, position],
        )
        for number, position in enumerate(measured)
    }
