"""Captions of test pictures, by which a browser finds out whether its WebGPU computes as it should."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.captioning import Captioner

SEEDS = (1, 2, 3)


def reference_captions(captioner: Captioner) -> list[dict[str, Any]]:
    """Words and log-probabilities of the captions of the test pictures."""
    size = captioner.backend.image_size
    captions = captioner([reference_pixels(size, seed) for seed in SEEDS])
    return [
        {
            "seed": seed,
            "words": [word.text for word in caption.words],
            "log_probabilities": [round(word.log_probability, 5) for word in caption.words],
        }
        for seed, caption in zip(SEEDS, captions, strict=True)
    ]


def reference_pixels(size: int, seed: int) -> NDArray[np.uint8]:
    """A test picture of whole numbers only, (size, size, 3): the same as in captioner_worker.js."""
    y, x, c = np.ogrid[:size, :size, :3]
    values: NDArray[np.int64] = x * (seed + 1) + y * (c + 1) + ((x * y) >> 5) * seed + 40 * c
    return (values & 255).astype(np.uint8)
