"""Inputs of the encoder's tail: cached grids, or pixels if nothing is cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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


class Grids(Protocol):
    """Inputs of the encoder's tail for images, by their position in a split."""

    def __call__(self, positions: NDArray[np.int64], rng: np.random.Generator | None = None) -> torch.Tensor:
        """(B, C, rows, cols). With `rng` they are augmented for training."""


class CachedGrids:
    """Grids from the feature cache. Training mirrors them, if the cache has mirror images, and crops them."""

    def __init__(self, cache: features.Features, data: CaptionSet, *, crop: float = 1.0) -> None:
        self.cache, self.crop = cache, crop
        self.locations = cache.locate([features.image_key(item.path) for item in data])
        cache.locations.clear()  # frees the memory of a hundred thousand keys, which are not needed again

    def __call__(self, positions: NDArray[np.int64], rng: np.random.Generator | None = None) -> torch.Tensor:
        views = rng.integers(0, 2, len(positions)) if rng is not None and self.cache.spec.flip else None
        grids = self.cache.read(self.locations[positions], views)
        return grids if rng is None or self.crop == 1 else crop(grids, self.crop, rng)


def crop(grids: torch.Tensor, min_share: float, rng: np.random.Generator) -> torch.Tensor:
    """Random parts of grids (B, C, rows, cols), at least `min_share` of each side.

    All have the same size, and each has its own offset.
    """
    (rows, cols), images = grids.shape[2:], len(grids)
    height, width = (int(rng.integers(math.ceil(side * min_share), side + 1)) for side in (rows, cols))
    tops, lefts = rng.integers(0, rows - height + 1, images), rng.integers(0, cols - width + 1, images)
    offsets = zip(grids, tops, lefts, strict=True)
    return torch.stack([grid[:, top : top + height, left : left + width] for grid, top, left in offsets])


class PixelGrids:
    """For an empty trunk: pixels from disk, augmented in training. `encoder.trunk` then only normalizes them."""

    def __init__(self, encoder: Encoder, data: CaptionSet, *, augment: bool) -> None:
        self.encoder = encoder
        self.paths: Sequence[Path] = [item.path for item in data]
        self.augment = augment
        self.pool = ThreadPoolExecutor(2)

    def __call__(self, positions: NDArray[np.int64], rng: np.random.Generator | None = None) -> torch.Tensor:
        size = self.encoder.settings.size
        uniform = rng.random((len(positions), 5)) if rng is not None and self.augment else None

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


def read_ahead(fetch: Callable[[int], T], count: int) -> Iterator[T]:
    """fetch(0), fetch(1), …: the next one is fetched in a thread while the current one is used."""
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(fetch, 0) if count else None
        for i in range(count):
            assert following is not None
            current, following = following, pool.submit(fetch, i + 1) if i + 1 < count else None
            yield current.result()
