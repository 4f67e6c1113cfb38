"""Captions as data for the viewer: what `createViewer` of viewer.js takes, ready for JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption, Evidence, Word
from captioner.text.nouns import is_content_word

UNIT = 100_000  # weights are whole numbers in units of 1 / UNIT, which makes pages smaller


def view_of(caption: Caption) -> list[dict[str, Any]]:
    """The caption and its alternatives, as `captions` of a viewer."""
    return [_view(shown) for shown in (caption, *caption.alternatives)]


def _view(caption: Caption) -> dict[str, Any]:
    rows, cols = caption.words[0].alpha.shape if caption.words else (1, 1)
    view: dict[str, Any] = {
        "score": _finite(caption.score),
        "rows": rows,
        "cols": cols,
        "words": [_word(word) for word in caption.words],
    }
    return view if caption.confidence is None else {**view, "confidence": _finite(caption.confidence)}


def _word(word: Word) -> dict[str, Any]:
    view: dict[str, Any] = {
        "word": word.text,
        "probability": _finite(word.probability),
        "map": _whole(word.alpha * UNIT),
        "gate": _finite(word.gate),
        "content": is_content_word(word.text),
    }
    if word.cell is not None:
        view["cell"] = list(word.cell)
    if word.alternatives:
        view["alternatives"] = [[text, _finite(p)] for text, p in word.alternatives]
    if word.evidence is not None:
        view["evidence"] = _evidence(word.evidence)
    return view


def _evidence(evidence: Evidence) -> dict[str, Any]:
    view: dict[str, Any] = {
        "map": np.round(evidence.relied.ravel().astype(np.float64), 3).tolist(),
        "seen": _finite(evidence.seen),
        "blurred": _finite(evidence.blurred),
    }
    if evidence.correlation is not None:
        view["correlation"] = _finite(evidence.correlation)
    if evidence.curves is not None:
        view["curves"] = evidence.curves.to_dict()
    return view


def _whole(values: NDArray[Any]) -> list[int]:
    numbers: list[int] = np.rint(values.ravel().astype(np.float64)).astype(int).tolist()
    return numbers


def _finite(value: float) -> float:
    return round(float(value), 6) if math.isfinite(value) else 0.0
