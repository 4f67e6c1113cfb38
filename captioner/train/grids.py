"""Inputs of the encoder's tail: cached grids, or pixels if nothing is cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from captioner.data.caption_set import CaptionSet
from captioner.images.pixels import squash
from captioner.images.reading import read_image
from captioner.model.encoder import Encoder
from captioner.progress import ProgressBar
from captioner.train import features
from captioner.train.config import Config

T = TypeVar("T")


def open_features(
    config: Config,
    encoder: Encoder,
    data: CaptionSet,
    *,
    device: str,
    progress: Callable[[int, int], None] | None = None,
) -> features.Features:
    """The feature cache of a split, after encoding the images that are missing in it."""
    spec = features.FeatureSpec.of(encoder, flip=config.features.flip)
    return features.build(
        features.cache_folder(config.features.folder, spec),
        spec,
        encoder,
        [item.path for item in data],
        batch=config.features.batch,
        shard=config.features.shard,
        device=device,
        threads=config.training.threads,
        progress=progress or (lambda done, total: None),
    )


def encoding_progress() -> ProgressBar:
    """Progress of encoding; in a log file, one line per 1,024 images."""
    return ProgressBar("encoding", "images", plain_every=1024)


@dataclass(frozen=True)
class Views:
    """What the annotation grids of a batch show: parts of pictures, some of them mirrored first."""

    rows: int  # of every annotation grid
    cols: int
    mirrored: NDArray[np.bool_]  # (B,)
    windows: NDArray[np.float64]  # (B, 4): left, top, right, bottom in the (mirrored) picture, which is 0 to 1


@dataclass(frozen=True)
class AugmentedGrids:
    """Inputs of the encoder's tail for a training batch, and what they show."""

    grids: torch.Tensor  # (B, C, rows, cols)
    views: Views


class Grids(Protocol):
    """Inputs of the encoder's tail for images, by their position in a split."""

    def __call__(self, positions: NDArray[np.int64]) -> torch.Tensor:
        """(B, C, rows, cols), of whole pictures."""

    def augmented(self, positions: NDArray[np.int64], rng: np.random.Generator) -> AugmentedGrids:
        """The same, mirrored and cropped at random for training."""


class CachedGrids:
    """Grids from the feature cache. Training mirrors them, if the cache has mirror images, and crops them."""

    def __init__(self, cache: features.Features, data: CaptionSet, *, grid: tuple[int, int], crop: float = 1.0) -> None:
        """`grid` is the rows and columns of the annotations of a whole picture."""
        self.cache, self.grid, self.crop = cache, grid, crop
        self.locations = cache.locate([features.image_key(item.path) for item in data])
        cache.locations.clear()  # frees the memory of a hundred thousand keys, which are not needed again

    def __call__(self, positions: NDArray[np.int64]) -> torch.Tensor:
        return self.cache.read(self.locations[positions])

    def augmented(self, positions: NDArray[np.int64], rng: np.random.Generator) -> AugmentedGrids:
        flips = rng.integers(0, 2, len(positions)) if self.cache.spec.flip else np.zeros(len(positions), np.int64)
        grids = self.cache.read(self.locations[positions], flips if self.cache.spec.flip else None)
        size = grids.shape[2], grids.shape[3]
        corners = np.zeros((len(positions), 2), np.int64)
        if self.crop < 1:
            grids, corners = crop(grids, self.crop, rng)
        rows, cols = (
            math.ceil(part * cells / whole) for part, cells, whole in zip(grids.shape[2:], self.grid, size, strict=True)
        )
        tops, lefts = (corners / size).T
        # A crop may end inside a cell of the annotations, so the windows are measured in whole cells.
        windows = np.stack([lefts, tops, lefts + cols / self.grid[1], tops + rows / self.grid[0]], 1)
        return AugmentedGrids(grids, Views(rows, cols, flips == 1, windows))


def crop(grids: torch.Tensor, min_share: float, rng: np.random.Generator) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Random parts of grids (B, C, rows, cols), at least `min_share` of each side, and their top left cells (B, 2).

    All have the same size, and each has its own offset.
    """
    (rows, cols), images = grids.shape[2:], len(grids)
    height, width = (int(rng.integers(math.ceil(side * min_share), side + 1)) for side in (rows, cols))
    tops, lefts = rng.integers(0, rows - height + 1, images), rng.integers(0, cols - width + 1, images)
    offsets = zip(grids, tops, lefts, strict=True)
    parts = torch.stack([grid[:, top : top + height, left : left + width] for grid, top, left in offsets])
    return parts, np.stack([tops, lefts], 1)


class PixelGrids:
    """For an empty trunk: pixels from disk, augmented in training. `encoder.trunk` then only normalizes them."""

    def __init__(self, encoder: Encoder, data: CaptionSet, *, augment: bool) -> None:
        self.encoder = encoder
        self.grid = encoder.grid()
        self.paths: Sequence[Path] = [item.path for item in data]
        self.augment = augment
        self.pool = ThreadPoolExecutor(2)

    def __call__(self, positions: NDArray[np.int64]) -> torch.Tensor:
        return self._read(positions, None)

    def augmented(self, positions: NDArray[np.int64], rng: np.random.Generator) -> AugmentedGrids:
        uniform = rng.random((len(positions), 5)) if self.augment else None
        return AugmentedGrids(self._read(positions, uniform), pixel_views(uniform, len(positions), self.grid))

    def _read(self, positions: NDArray[np.int64], uniform: NDArray[np.float64] | None) -> torch.Tensor:
        size = self.encoder.settings.size

        def read_pixels(i: int) -> NDArray[np.uint8]:
            image, _ = read_image(self.paths[positions[i]], min_side=2 * size)
            return squash(image if uniform is None else augment(image, uniform[i]), size)

        pixels = np.stack(list(self.pool.map(read_pixels, range(len(positions)))))
        with torch.no_grad():
            return self.encoder.trunk(torch.from_numpy(pixels).to(self.encoder.mean.device))


def augment(image: Image.Image, uniform: NDArray[np.float64]) -> Image.Image:
    """A random crop of at least three quarters of each side, mirrored half the time, by five numbers in 0..1."""
    width, height = image.size
    w, h = width * (0.75 + 0.25 * uniform[0]), height * (0.75 + 0.25 * uniform[1])
    left, top = (width - w) * uniform[2], (height - h) * uniform[3]
    image = image.crop((round(left), round(top), round(left + w), round(top + h)))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if uniform[4] < 0.5 else image


def pixel_views(uniform: NDArray[np.float64] | None, images: int, grid: tuple[int, int]) -> Views:
    """What `augment` leaves of pictures, for the same numbers (B, 5); whole pictures without them."""
    if uniform is None:
        return Views(*grid, np.zeros(images, np.bool_), np.tile([0.0, 0.0, 1.0, 1.0], (images, 1)))
    width, height = 0.75 + 0.25 * uniform[:, 0], 0.75 + 0.25 * uniform[:, 1]
    left, top = (1 - width) * uniform[:, 2], (1 - height) * uniform[:, 3]
    mirrored = uniform[:, 4] < 0.5
    left = np.where(mirrored, 1 - left - width, left)  # pictures are cropped before they are mirrored
    return Views(*grid, mirrored, np.stack([left, top, left + width, top + height], 1))


def read_ahead(fetch: Callable[[int], T], count: int) -> Iterator[T]:
    """fetch(0), fetch(1), …: the next one is fetched in a thread while the current one is used."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(fetch, 0) if count else None
        for i in range(count):
            assert following is not None
            current, following = following, pool.submit(fetch, i + 1) if i + 1 < count else None
            yield current.result()
