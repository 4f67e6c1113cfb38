"""Backend: the interface between search and a model. onnxruntime (`onnx_backend`) and torch (`torch_backend`) have it.

All arrays have the axes (B, K, ...): B images with K hypotheses each. What the hypotheses of an image share (its
annotations and keys) is stored once per image.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from captioner.options import BackendLabel, HardAttention
from captioner.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Annotations:
    """A batch of annotation grids, in the array type of the backend."""

    values: Any  # (B, rows * cols, D)
    rows: int
    cols: int
    # (B,): a number per picture (`checksums`) that seeds sampling together with the user's seed. So a picture gets the
    # same caption alone, in any batch, and in a resumed run. None: the position in the batch, or nothing is sampled.
    keys: NDArray[np.uint32] | None = None

    @property
    def sampling_keys(self) -> NDArray[np.uint32]:
        return np.arange(len(self.values), dtype=np.uint32) if self.keys is None else self.keys

    def singly(self) -> list[Annotations]:
        """One batch per image."""
        keys = self.sampling_keys
        return [replace(self, values=self.values[i : i + 1], keys=keys[i : i + 1]) for i in range(len(self.values))]

    @property
    def pooled(self) -> NDArray[np.float32]:
        """The mean over the cells of each grid, (B, D)."""
        means = self.values.mean(1)
        return np.asarray(means if isinstance(means, np.ndarray) else means.float().cpu().numpy())


@dataclass(frozen=True)
class State:
    """The state of decoding. Search does not look inside; it only reorders it with `Backend.select_hypotheses`."""

    shared: dict[str, Any]  # (B, ...): one per image
    own: dict[str, Any]  # (B, K, ...): one per hypothesis
    # For hard attention.
    hard_attention: HardAttention = "expected"
    seed: int = 0
    keys: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))  # (B,)
    time: int = 0  # number of steps so far


@dataclass(frozen=True)
class Step:
    """The output of one decoding step."""

    log_probabilities: NDArray[np.float32]  # (B, K, V)
    state: State
    alpha: NDArray[np.float32]  # (B, K, L)
    gate: NDArray[np.float32]  # (B, K)
    cell: NDArray[np.int64] | None = None  # (B, K): the cell that a hard model selected, where it did


def checksums(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """One number (B,) per picture (B, ...), computed from its pixels."""
    return np.array([crc32(np.ascontiguousarray(picture).data) for picture in pixels], np.uint32)


def gumbel_noise(seed: int, keys: NDArray[np.uint32], time: int, hypotheses: int, cells: int) -> NDArray[np.float32]:
    """Noise (B, K, L) that makes argmax(log alpha + noise) a sample from alpha.

    It depends on the seed, the picture and the step only, so both backends sample the same cells.
    """
    noise = [
        np.random.default_rng((seed, int(key), time)).gumbel(size=(hypotheses, cells)).astype(np.float32)
        for key in keys
    ]
    return np.stack(noise) if noise else np.zeros((0, hypotheses, cells), np.float32)


class Backend(Protocol):
    """A model ready to run."""

    name: BackendLabel
    vocabulary: Vocabulary
    image_size: int
    rows: int
    cols: int
    hard: bool  # whether a word may attend to a single cell
    one_by_one: bool  # whether pictures are searched singly, because the others of a batch would change their captions

    def encode(self, pixels: NDArray[np.uint8], *, keys: bool = True) -> Annotations:
        """Annotations of pictures, (B, size, size, 3) RGB. Without `keys`, nothing can be sampled for them."""

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        """The state before the first word, with one hypothesis per image (K = 1).

        `hard_attention` says how a hard model turns alpha into a context (None: the model's default); `seed` is for
        sampling. A soft model always takes the expectation.
        """

    def step(self, state: State, words: NDArray[np.int64]) -> Step:
        """One step, given the previous words (B, K): the start token before the first word."""

    def select_hypotheses(self, state: State, parents: NDArray[np.int64]) -> State:
        """The state in which hypothesis k of image b continues hypothesis parents[b, k]."""

    def select_images(self, state: State, images: NDArray[np.int64]) -> State:
        """The state of these images only, in this order."""
