"""Captions as JSON: the objects that `captioner caption --format jsonl` writes, with more about each word."""

from __future__ import annotations

from typing import Any

import numpy as np

from captioner.caption import Caption, Failure, Word
from captioner.serve.batcher import Batcher, Result
from captioner.serve.caption_request import CaptionRequest
from captioner.serve.service import Timings
from captioner.writers.lines import record


def caption_response(
    asked: CaptionRequest, batcher: Batcher, results: list[Result], timings: Timings
) -> dict[str, Any]:
    """The body of the answer to POST /v1/caption."""
    return {
        "model": batcher.name,
        "backend": batcher.captioner.backend.name,
        "results": [
            failed(result) if isinstance(result, Failure) else captioned(picture.name, result, asked)
            for picture, result in zip(asked.pictures, results, strict=True)
        ],
        "timings": {
            "decode_ms": round(1000 * timings.decode, 2),
            "caption_ms": round(1000 * timings.caption, 2),
        },
    }


def failed(failure: Failure) -> dict[str, Any]:
    return {"image": failure.name, "error": failure.reason}


def captioned(name: str, caption: Caption, asked: CaptionRequest) -> dict[str, Any]:
    assert caption.picture is not None
    frame = caption.picture.frame
    values = {"width": frame.width, "height": frame.height, **_sentence(name, caption, asked)}
    if caption.alternatives:
        values["alternatives"] = [_sentence(name, other, asked) for other in caption.alternatives]
    return values


def _sentence(name: str, caption: Caption, asked: CaptionRequest) -> dict[str, Any]:
    values = {"text": asked.wording.text(caption), **record(name, caption, words=asked.words)}
    del values["backend"]  # the same for all results
    if values["confidence"] is None:  # the model has no calibration
        del values["confidence"]
    if asked.words:
        words = [*caption.words, *([caption.end] if caption.end else [])]
        records = [*values["words"], *([values["end"]] if caption.end else [])]
        for entry, word in zip(records, words, strict=True):
            entry |= _more(word, asked.maps)
    return values


def _more(word: Word, maps: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"probability": round(word.probability, 6)}
    if word.alternatives:
        values["alternatives"] = [[text, round(probability, 6)] for text, probability in word.alternatives]
    return values | ({"alpha": np.round(word.alpha.astype(np.float64), 6).tolist()} if maps else {})
