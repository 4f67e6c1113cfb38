"""Occlusion: how much less likely each word becomes when a window of the picture is blurred.

The windows are a quarter of the picture wide and high and overlap by half or more. All words of a caption are measured
at once: each changed picture is encoded once, and the caption is forced on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from captioner.evidence.blurring import Cover, blurred, cover_cells
from captioner.images.pixels import Pixels
from captioner.inference.backend import Annotations, Backend
from captioner.inference.batching import in_threads
from captioner.inference.search import SearchOptions, force

BATCH = 16  # pictures that are encoded and decoded together


@dataclass(frozen=True)
class Occlusion:
    """Log-probabilities of the T words of a caption, and the maps of what they relied on."""

    seen: NDArray[np.float32]  # (T,): with the picture
    blurred: NDArray[np.float32]  # (T,): with the whole picture blurred
    relied: NDArray[np.float32]  # (T, rows, cols): the mean fall over the windows that cover a cell


def windows(rows: int, cols: int) -> list[Cover]:
    """The windows over a grid, in reading order. Every cell is in at least one."""
    covers = []
    for top in _starts(rows):
        for left in _starts(cols):
            cover = np.zeros((rows, cols), np.bool_)
            cover[top : top + _length(rows), left : left + _length(cols)] = True
            covers.append(cover)
    return covers


def _length(cells: int) -> int:
    return max(1, round(cells / 4))


def _starts(cells: int) -> list[int]:
    """First cells of the windows along one side; the last window ends at the border."""
    last = cells - _length(cells)
    return sorted({*range(0, last + 1, max(1, round(cells / 8))), last})


def occlusion(
    backend: Backend, pixels: Pixels, words: Sequence[int], options: SearchOptions, *, threads: int = 1
) -> Occlusion:
    """Occlude the picture of a caption, which is given as word numbers."""
    away = blurred(pixels)
    covers = windows(backend.rows, backend.cols)
    pictures = [pixels, away, *(cover_cells(pixels, away, cover) for cover in covers)]
    table = word_log_probabilities(backend, pictures, words, options, threads=threads)
    falls = table[0] - table[2:]  # (windows, T)
    masks = np.stack(covers).astype(np.float32)  # (windows, rows, cols)
    relied = np.einsum("wt,wrc->trc", falls, masks) / masks.sum(0)
    return Occlusion(table[0], table[1], relied.astype(np.float32))


def word_log_probabilities(
    backend: Backend, pictures: Sequence[Pixels], words: Sequence[int], options: SearchOptions, *, threads: int = 1
) -> NDArray[np.float32]:
    """Log-probabilities of the same words on several versions of one picture: (pictures, words)."""
    key = backend.encode(pictures[0][None]).keys if backend.hard else None

    def part(batch: Sequence[Pixels]) -> NDArray[np.float32]:
        annotations = backend.encode(np.stack(batch))
        if key is not None:  # a hard model samples the same cells for all versions
            annotations = _with_key(annotations, key)
        hypotheses = force(backend, annotations, [[words]] * len(batch), options)
        return np.stack([hypothesis.log_probabilities[: len(words)] for (hypothesis,) in hypotheses])

    size = max(1, min(BATCH, -(-len(pictures) // threads)))
    parts = [pictures[start : start + size] for start in range(0, len(pictures), size)]
    return np.concatenate(list(in_threads(part, parts, threads)))


def _with_key(annotations: Annotations, key: NDArray[np.uint32]) -> Annotations:
    return replace(annotations, keys=np.repeat(key, len(annotations.values)))
