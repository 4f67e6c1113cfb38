"""The numbers behind the drawings, as an npz file that loads without pickle."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption, Word
from captioner.overlay import geometry
from captioner.overlay.lettering import shown_name


def arrays(caption: Caption, *, full_path: bool = False) -> dict[str, NDArray[Any]]:
    """Words, maps and geometry as named arrays, for T words on a grid of rows x cols.

    `cells` are the rectangles of the grid in the upright picture: left, top, right, bottom in pixels. `cells_stored`
    are the same rectangles in the pixels of the file, before its EXIF orientation is applied. `picture` is the name of
    the file, with its folders if `full_path`.
    """
    words = caption.words
    named: dict[str, NDArray[Any]] = {
        "text": np.array(caption.text),
        "words": np.array([word.text for word in words], dtype=np.str_),  # (T,)
        "alpha": caption.alphas,  # (T, rows, cols)
        "log_probability": np.array([word.log_probability for word in words], np.float64),  # (T,)
        "gate": np.array([word.gate for word in words], np.float64),
        "entropy": np.array([word.entropy for word in words], np.float64),
        "cell": np.array([word.cell or (-1, -1) for word in words], np.int64).reshape(-1, 2),  # (T, 2)
        "score": np.array(caption.score),
        "alternatives": np.array([other.text for other in caption.alternatives], dtype=np.str_),
        "alternative_scores": np.array([other.score for other in caption.alternatives], np.float64),
    }
    if any(word.alternatives for word in words):
        named |= _likeliest(words)
    if any(word.evidence is not None for word in words):
        named |= _evidence(words)
    if caption.end is not None:
        named["end_alpha"] = caption.end.alpha
        named["end_log_probability"] = np.array(caption.end.log_probability)
    if caption.picture is not None:
        frame = caption.picture.frame
        named["picture"] = np.array(caption.picture.name if full_path else shown_name(caption.picture))
        named["width"] = np.array(frame.width)
        named["height"] = np.array(frame.height)
        named["orientation"] = np.array(frame.orientation)
        if words:
            boxes = geometry.cells(frame, *words[0].alpha.shape)
            named["cells"] = boxes  # (rows, cols, 4)
            named["cells_stored"] = np.array([[frame.stored_box(tuple(box)) for box in row] for row in boxes.tolist()])
    return named


def _likeliest(words: Sequence[Word]) -> dict[str, NDArray[Any]]:
    """The likeliest words at each position and their probabilities, (T, K)."""
    most = max(len(word.alternatives) for word in words)
    table = [[*word.alternatives, *[("", math.nan)] * (most - len(word.alternatives))] for word in words]
    return {
        "likeliest_words": np.array([[text for text, _ in row] for row in table], dtype=np.str_),
        "likeliest_probabilities": np.array([[p for _, p in row] for row in table], np.float64),
    }


def _evidence(words: Sequence[Word]) -> dict[str, NDArray[Any]]:
    """Evidence of all words; nan where it was not measured."""
    shape = words[0].alpha.shape

    def numbers(name: str) -> NDArray[np.float64]:
        values = [None if word.evidence is None else getattr(word.evidence, name) for word in words]
        return np.array([math.nan if value is None else value for value in values], np.float64)

    empty = np.full(shape, np.nan, np.float32)
    named: dict[str, NDArray[Any]] = {
        "relied": np.stack([empty if word.evidence is None else word.evidence.relied for word in words]),
        "log_probability_blurred": numbers("blurred"),
        "habit": numbers("habit"),
        "rank_correlation": numbers("correlation"),
    }
    curves = [None if word.evidence is None else word.evidence.curves for word in words]
    measured = next((curve for curve in curves if curve is not None), None)
    if measured is not None:
        blank = np.full(len(measured.shares), np.nan, np.float32)
        named["curve_shares"] = measured.shares
        for name in ("deletion", "insertion", "random_deletion", "random_insertion"):
            named[name] = np.stack([blank if curve is None else getattr(curve, name) for curve in curves])
    return named


def arrays_npz(caption: Caption, *, full_path: bool = False) -> bytes:
    """The content of an npz file with the arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays(caption, full_path=full_path))
    return buffer.getvalue()
