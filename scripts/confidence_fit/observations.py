"""What a model says about pictures: its captions, its pooled annotations, and which content words are right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captioner.caption import Caption, Failure
from captioner.captioning import Captioner
from captioner.data.caption_set import Item
from captioner.images.reading import ImageSource, load_for_model
from captioner.inference.batching import in_threads
from captioner.inference.streaming import CaptionStream
from captioner.metrics.content_words import precision, right_words
from captioner.progress import ProgressBar
from confidence_fit.non_photos import KINDS, draw_non_photo

BATCH = 16


@dataclass(frozen=True, eq=False)
class Observation:
    """One picture that was captioned."""

    caption: Caption
    pooled: NDArray[np.float32]  # (D,)
    right: list[bool | None]  # for each word of the caption; None for function words
    kind: str = ""  # of a picture that is no photo

    @property
    def precision(self) -> float:
        return precision(self.right)


def pooled_annotations(captioner: Captioner, sources: Sequence[ImageSource], label: str) -> NDArray[np.float32]:
    """The pooled annotations of pictures, (n, D)."""

    def encode(part: Sequence[ImageSource]) -> NDArray[np.float32]:
        pixels = np.stack([load_for_model(source, captioner.backend.image_size)[1] for source in part])
        return captioner.backend.encode(pixels).pooled

    return np.concatenate(list(_in_parts(captioner, encode, sources, label)))


def observe(captioner: Captioner, items: Sequence[Item], label: str) -> list[Observation]:
    """Caption photos that have references."""

    def caption(part: Sequence[Item]) -> list[Observation]:
        captions, pooled = _captions(captioner, [item.path for item in part])
        return [
            Observation(caption, mean, right_words([word.text for word in caption.words], item.captions))
            for item, caption, mean in zip(part, captions, pooled, strict=True)
        ]

    return [one for part in _in_parts(captioner, caption, items, label) for one in part]


def observe_non_photos(captioner: Captioner, seeds: range, label: str) -> list[Observation]:
    """Caption drawn pictures. No content word is right, because there is nothing that a photo shows."""
    wanted = [(kind, seed) for kind in KINDS for seed in seeds]

    def caption(part: Sequence[tuple[str, int]]) -> list[Observation]:
        pictures: list[Image.Image] = [draw_non_photo(kind, seed) for kind, seed in part]
        captions, pooled = _captions(captioner, pictures)
        return [
            Observation(caption, mean, [False] * len(caption.words), kind)
            for (kind, _), caption, mean in zip(part, captions, pooled, strict=True)
        ]

    return [one for part in _in_parts(captioner, caption, wanted, label) for one in part]


def _captions(captioner: Captioner, sources: Sequence[ImageSource]) -> tuple[list[Caption], NDArray[np.float32]]:
    pictures, pixels = zip(*(load_for_model(source, captioner.backend.image_size) for source in sources), strict=True)
    annotations = captioner.backend.encode(np.stack(pixels))
    results = CaptionStream(captioner.backend, captioner.defaults).captions(pictures, annotations)
    captions = [result for result in results if not isinstance(result, Failure)]
    return captions, annotations.pooled


def _in_parts(captioner: Captioner, work: Any, things: Sequence[Any], label: str) -> Iterator[Any]:
    parts = [things[start : start + BATCH] for start in range(0, len(things), BATCH)]
    with ProgressBar(label) as progress:
        progress.total = len(things)
        for part, result in zip(parts, in_threads(work, parts, captioner.threads), strict=True):
            for _ in part:
                progress.advance()
            yield result
