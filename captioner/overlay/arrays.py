"""The numbers behind the drawings, as an npz file that loads without pickle."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption
from captioner.overlay import geometry


def arrays(caption: Caption) -> dict[str, NDArray[Any]]:
    """Words, maps and geometry as named arrays, for T words on a grid of rows x cols.

    `cells` are the rectangles of the grid in the upright picture: left, top, right, bottom in pixels. `cells_stored`
    are the same rectangles in the pixels of the file, before its EXIF orientation is applied.
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
    if caption.end is not None:
        named["end_alpha"] = caption.end.alpha
        named["end_log_probability"] = np.array(caption.end.log_probability)
    if caption.picture is not None:
        frame = caption.picture.frame
        named["picture"] = np.array(caption.picture.name)
        named["width"] = np.array(frame.width)
        named["height"] = np.array(frame.height)
        named["orientation"] = np.array(frame.orientation)
        if words:
            boxes = geometry.cells(frame, *words[0].alpha.shape)
            named["cells"] = boxes  # (rows, cols, 4)
            named["cells_stored"] = np.array([[frame.stored_box(tuple(box)) for box in row] for row in boxes.tolist()])
    return named


def arrays_npz(caption: Caption) -> bytes:
    """The content of an npz file with the arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays(caption))
    return buffer.getvalue()
