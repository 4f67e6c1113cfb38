"""From a config to what the loop reads: the splits, the vocabulary, and grids or pixels of images."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from captioner.data.caption_set import CaptionSet, combine
from captioner.data.formats.detection import read_set
from captioner.errors import CaptionerError
from captioner.images.pixels import squash
from captioner.images.reading import read
from captioner.model.encoder import Encoder
from captioner.progress import ProgressBar
from captioner.train import features
from captioner.train.config import Config


def read_split(config: Config, which: str) -> CaptionSet:
    """The configured sources of `train` or `val`, combined; missing images are an error unless allowed."""
    sources = config.data.train if which == "train" else config.data.val
    parts = []
    for i, source in enumerate(sources):
        part = read_set(
            config.path(source.captions),
            config.path(source.images) if source.images else None,
            format=source.format,
            split=source.split,
            restval=source.restval,
            setting=f"data.{which}.{i}.captions",
            images_setting=f"data.{which}.{i}.images",
        )
        parts.append(part)
    if not parts:
        raise CaptionerError(f"data.{which} lists no source")
    data = (parts[0] if len(parts) == 1 else combine(parts, name=which)).captioned()
    missing = {item.id: item.path for item in data if not item.path.is_file()}
    if missing and not config.data.allow_missing:
        raise CaptionerError(
            f"data.{which}: {len(missing)} of {len(data)} images are missing, {next(iter(missing.values()))} for one; "
            "see `captioner data check`, or set data.allow_missing=true"
        )
    kept = tuple(item for item in data if item.id not in missing)
    if not kept:
        gone = f": all {len(data)} are missing, {next(iter(missing.values()))} for one" if missing else ""
        raise CaptionerError(f"data.{which} holds no image with captions{gone}")
    return dataclasses.replace(data, items=kept)


def check_apart(train: CaptionSet, val: CaptionSet) -> None:
    """A picture that is trained on must not be validated on."""
    both = {item.path for item in train} & {item.path for item in val}
    if both:
        raise CaptionerError(f"{len(both)} images are in data.train and in data.val, {min(both)} for one")


def open_features(
    config: Config,
    encoder: Encoder,
    data: CaptionSet,
    *,
    device: str,
    progress: Callable[[int, int], None] | None = None,
) -> features.Features:
    """The cache of a split, made or completed where needed."""
    maker = features.Maker.of(encoder, flip=config.features.flip)
    return features.build(
        features.cache_folder(config.features.folder, maker),
        maker,
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
    """What the encoder's tail takes, for images by their position in a split."""

    def __call__(self, positions: NDArray[np.int64], rng: np.random.Generator | None = None) -> torch.Tensor:
        """(B, C, rows, cols); with `rng`, views are drawn as training wants them."""


class CachedGrids:
    """Grids of a split from the feature cache; training draws views where it has mirror images, and parts of them."""

    def __init__(self, cache: features.Features, data: CaptionSet, *, crop: float = 1.0) -> None:
        self.cache, self.crop = cache, crop
        self.places = cache.locate([features.key(item.path) for item in data])
        cache.rows.clear()  # a hundred thousand names that nobody asks for again

    def __call__(self, positions: NDArray[np.int64], rng: np.random.Generator | None = None) -> torch.Tensor:
        views = rng.integers(0, 2, len(positions)) if rng is not None and self.cache.maker.flip else None
        grids = self.cache.read(self.places[positions], views)
        return grids if rng is None or self.crop == 1 else crop(grids, self.crop, rng)


def crop(grids: torch.Tensor, share: float, rng: np.random.Generator) -> torch.Tensor:
    """Random parts of grids (B, C, rows, cols), at least `share` of each side: of one size, each at its own place."""
    (rows, cols), images = grids.shape[2:], len(grids)
    height, width = (int(rng.integers(math.ceil(side * share), side + 1)) for side in (rows, cols))
    tops, lefts = rng.integers(0, rows - height + 1, images), rng.integers(0, cols - width + 1, images)
    places = zip(grids, tops, lefts, strict=True)
    return torch.stack([grid[:, top : top + height, left : left + width] for grid, top, left in places])


class PixelGrids:
    """An empty trunk: pixels from disk, augmented in training. `encoder.trunk` is then only the normalisation."""

    def __init__(self, encoder: Encoder, data: CaptionSet, *, augment: bool) -> None:
        self.encoder = encoder
        self.paths: Sequence[Path] = [item.path for item in data]
        self.augment = augment
        self.pool = ThreadPoolExecutor(2)

    def __call__(self, positions: NDArray[np.int64], rng: np.random.Generator | None = None) -> torch.Tensor:
        size = self.encoder.settings.size
        draws = rng.random((len(positions), 5)) if rng is not None and self.augment else None

        def one(i: int) -> NDArray[np.uint8]:
            image, _ = read(self.paths[positions[i]], least=2 * size)
            return squash(image if draws is None else augment(image, draws[i]), size)

        pixels = np.stack(list(self.pool.map(one, range(len(positions)))))
        with torch.no_grad():
            return self.encoder.trunk(torch.from_numpy(pixels).to(self.encoder.mean.device))


def augment(image: Image.Image, draws: NDArray[np.float64]) -> Image.Image:
    """A random crop of at least three quarters of each side, mirrored half the time; draws are in 0..1."""
    width, height = image.size
    w, h = width * (0.75 + 0.25 * draws[0]), height * (0.75 + 0.25 * draws[1])
    left, top = (width - w) * draws[2], (height - h) * draws[3]
    image = image.crop((round(left), round(top), round(left + w), round(top + h)))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draws[4] < 0.5 else image
