"""Backend: what search needs of a model. Implemented by onnxruntime (`captioner.inference.onnx_backend`) and torch.

All arrays have the axes (B, K, ...): B images and K hypotheses each. What the hypotheses of an image
share (its annotations and keys) is stored once per image.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from captioner.options import HardAttention
from captioner.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Annotations:
    """A batch of annotation grids, in the backend's own array type."""

    values: Any  # (B, rows * cols, D)
    rows: int
    cols: int
    # (B,) numbers that name the pictures (`checksums`): random draws are keyed by them, so that a picture gets
    # the same caption alone, in a batch, or when a run goes on. None: its place in the batch.
    keys: NDArray[np.uint32] | None = None

    @property
    def draw_keys(self) -> NDArray[np.uint32]:
        return np.arange(len(self.values), dtype=np.uint32) if self.keys is None else self.keys


@dataclass(frozen=True)
class State:
    """Where decoding stands. Opaque to search, which only reorders it with `Backend.select`."""

    shared: dict[str, Any]  # (B, ...): one per image
    own: dict[str, Any]  # (B, K, ...): one per hypothesis
    # What the draws of a hard model depend on.
    hard_attention: HardAttention = "expected"
    seed: int = 0
    keys: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))  # (B,)
    time: int = 0  # words fed


@dataclass(frozen=True)
class Step:
    """What one word more tells."""

    log_probabilities: NDArray[np.float32]  # (B, K, V)
    state: State
    alpha: NDArray[np.float32]  # (B, K, L)
    gate: NDArray[np.float32]  # (B, K)
    cell: NDArray[np.int64] | None = None  # (B, K): the cell that a hard model selected, where it did


def checksums(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """The keys (B,) of pictures (B, ...)."""
    return np.array([crc32(np.ascontiguousarray(each).data) for each in pixels], np.uint32)


def gumbel_noise(seed: int, keys: NDArray[np.uint32], time: int, hypotheses: int, cells: int) -> NDArray[np.float32]:
    """Noise (B, K, L) that makes argmax(log alpha + noise) a draw from alpha.

    It depends on the seed, the picture and the step alone, so that both backends draw the same places.
    """
    draws = [
        np.random.default_rng((seed, int(key), time)).gumbel(size=(hypotheses, cells)).astype(np.float32)
        for key in keys
    ]
    return np.stack(draws) if draws else np.zeros((0, hypotheses, cells), np.float32)


class Backend(Protocol):
    """A model ready to run."""

    vocabulary: Vocabulary
    image_size: int
    rows: int
    cols: int

    def encode(self, pixels: NDArray[np.uint8]) -> Annotations:
        """Annotations of pictures, (B, size, size, 3) RGB."""

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        """The state before the first word, with one hypothesis an image (K = 1).

        `hard_attention` says how a hard model turns alpha into a context (None: the model's default); `seed` is for
        sampling. A soft model always takes the expectation.
        """

    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        """Feed the last words (B, K); the first ones are the start token."""

    def select(self, state: State, parents: NDArray[np.int64]) -> State:
        """The state in which hypothesis k of image b goes on from hypothesis parents[b, k]."""

    def keep(self, state: State, images: NDArray[np.int64]) -> State:
        """The state of some of the images only, in the order given."""
