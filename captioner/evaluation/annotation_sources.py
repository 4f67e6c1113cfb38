"""Annotations of the images of a split, in batches: encoded from the pictures, or read from the feature cache."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Failure
from captioner.data.caption_set import Item
from captioner.errors import CaptionerError, UsageError
from captioner.images.pixels import Pixels
from captioner.images.reading import Picture, load_for_model
from captioner.inference.backend import Annotations, Backend

READERS = 2  # threads that read pictures


@dataclass(frozen=True)
class Batch:
    """Images that were read, a function that encodes them, and the images that could not be read."""

    positions: list[int]  # in the split
    encode: Callable[[], Annotations]  # called by the thread that captions the batch, if it has images
    pictures: list[Picture | None]  # None for annotations from the cache
    failures: dict[int, Failure]


class AnnotationSource(Protocol):
    """Gives the annotations of a split."""

    def batches(self, positions: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """One batch for each list of positions in the split."""


class PictureFiles:
    """Encodes picture files. The next batch is read while the current one is encoded."""

    def __init__(self, backend: Backend, items: Sequence[Item]) -> None:
        self.backend, self.items = backend, items

    def batches(self, positions: Sequence[Sequence[int]]) -> Iterator[Batch]:
        size = self.backend.image_size
        with ThreadPoolExecutor(READERS, thread_name_prefix="read") as pool:

            def start_reading(batch: Sequence[int]) -> list[Future[tuple[Picture, Pixels]]]:
                return [pool.submit(load_for_model, self.items[i].path, size) for i in batch]

            following = start_reading(positions[0]) if positions else []
            for number, batch in enumerate(positions):
                current = following
                following = start_reading(positions[number + 1]) if number + 1 < len(positions) else []
                yield self._batch(batch, current)

    def _batch(self, positions: Sequence[int], futures: list[Future[tuple[Picture, Pixels]]]) -> Batch:
        read: list[tuple[int, Picture, Pixels]] = []
        failures = {}
        for position, future in zip(positions, futures, strict=True):
            try:
                read.append((position, *future.result()))
            except CaptionerError as error:
                failures[position] = Failure(str(self.items[position].path), str(error))
        stack = [pixels for _, _, pixels in read]
        return Batch(
            [position for position, _, _ in read],
            lambda: self.backend.encode(np.stack(stack)),
            [picture for _, picture, _ in read],
            failures,
        )


class FeatureCache:
    """Reads the cache of `captioner features`. The rest of the encoder runs in torch."""

    def __init__(self, backend: Backend, items: Sequence[Item], folder: Path) -> None:
        from captioner.inference.torch_backend import TorchBackend
        from captioner.train import features

        if not isinstance(backend, TorchBackend):
            raise UsageError("--features needs the torch backend: give --backend torch")
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder (from --features); build a cache with `captioner features`")
        encoder = backend.network.encoder
        spec = features.FeatureSpec.of(encoder, flip=False)
        if (folder / "cache.json").is_file():
            spec = dataclasses.replace(spec, flip=_flipped(folder))
        else:  # a folder of caches: find the one of this encoder, with or without mirror images
            specs = [spec, dataclasses.replace(spec, flip=True)]
            matching = [s for s in specs if features.cache_folder(folder, s).is_dir()]
            if not matching:
                raise UsageError(
                    f"{folder}: no cache {features.cache_folder(folder, spec).name}, which this model needs "
                    "(from --features); build it with `captioner features`"
                )
            spec = matching[0]
            folder = features.cache_folder(folder, spec)
        self.backend = backend
        self.cache = features.Features(folder, spec)
        self.locations = self.cache.locate([features.image_key(item.path) for item in items])

    def batches(self, positions: Sequence[Sequence[int]]) -> Iterator[Batch]:
        for batch in positions:
            locations = self.locations[np.asarray(batch, np.int64)]
            yield Batch(list(batch), partial(self._encode, locations), [None] * len(batch), {})

    def _encode(self, locations: NDArray[Any]) -> Annotations:
        import torch

        with torch.inference_mode():
            values = self.backend.network.annotations(self.cache.read(locations).to(self.backend.device))
        # A hard model's samples depend on a key per picture. Here the key is the location in the cache.
        keys = (locations[:, 0].astype(np.int64) * 65_536 + locations[:, 1]).astype(np.uint32)
        return Annotations(values, self.backend.rows, self.backend.cols, keys)


def _flipped(folder: Path) -> bool:
    """Whether a cache has mirror images. Its other settings are checked when it is opened."""
    try:
        return bool(json.loads((folder / "cache.json").read_text(encoding="utf-8"))["flip"])
    except (ValueError, KeyError, TypeError):
        return False
