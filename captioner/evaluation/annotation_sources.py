"""The images of a split, batch by batch: the pictures themselves, or the feature cache."""

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
from captioner.images.reading import Picture, load
from captioner.inference.backend import Annotations, Backend

READERS = 2  # threads that read pictures


@dataclass(frozen=True)
class Batch:
    """Some images that were read, how to encode them, and those that could not be read."""

    positions: list[int]
    encode: Callable[[], Annotations]  # by the thread that captions them; not called where there are none
    pictures: list[Picture | None]  # None where the cache was read, not the picture
    failures: dict[int, Failure]


class AnnotationSource(Protocol):
    def batches(self, positions: Sequence[Sequence[int]]) -> Iterator[Batch]:
        """The images at these positions of the split, a batch for each list."""


class PictureFiles:
    """Pictures from their files, read ahead of the encoder."""

    def __init__(self, backend: Backend, items: Sequence[Item]) -> None:
        self.backend, self.items = backend, items

    def batches(self, positions: Sequence[Sequence[int]]) -> Iterator[Batch]:
        size = self.backend.image_size
        with ThreadPoolExecutor(READERS, thread_name_prefix="read") as pool:

            def ask(batch: Sequence[int]) -> list[Future[tuple[Picture, Pixels]]]:
                return [pool.submit(load, self.items[i].path, size) for i in batch]

            coming = ask(positions[0]) if positions else []
            for number, batch in enumerate(positions):
                now, coming = coming, ask(positions[number + 1]) if number + 1 < len(positions) else []
                yield self._batch(batch, now)

    def _batch(self, positions: Sequence[int], coming: list[Future[tuple[Picture, Pixels]]]) -> Batch:
        read: list[tuple[int, Picture, Pixels]] = []
        failures = {}
        for position, future in zip(positions, coming, strict=True):
            try:
                read.append((position, *future.result()))
            except CaptionerError as error:
                failures[position] = Failure(str(self.items[position].path), str(error))
        pixels = [each for *_, each in read]
        return Batch(
            [i for i, *_ in read],
            lambda: self.backend.encode(np.stack(pixels)),
            [picture for _, picture, _ in read],
            failures,
        )


class FeatureCache:
    """Grids that `captioner features` has made; the rest of the encoder runs in torch."""

    def __init__(self, backend: Backend, items: Sequence[Item], folder: Path) -> None:
        from captioner.inference.torch_backend import TorchBackend
        from captioner.train import features

        if not isinstance(backend, TorchBackend):
            raise UsageError("--features is read by the torch backend: give --backend torch")
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder (from --features); `captioner features` makes one")
        encoder = backend.network.encoder
        spec = features.FeatureSpec.of(encoder, flip=False)
        if (folder / "cache.json").is_file():
            spec = dataclasses.replace(spec, flip=_flipped(folder))
        else:  # a folder of caches: this encoder's, with mirror images or without
            specs = [spec, dataclasses.replace(spec, flip=True)]
            found = [each for each in specs if features.cache_folder(folder, each).is_dir()]
            if not found:
                raise UsageError(
                    f"{folder} holds no {features.cache_folder(folder, spec).name}, which this model needs "
                    "(from --features); `captioner features` makes it"
                )
            spec = found[0]
            folder = features.cache_folder(folder, spec)
        self.backend = backend
        self.cache = features.Features(folder, spec)
        self.locations = self.cache.locate([features.key(item.path) for item in items])

    def batches(self, positions: Sequence[Sequence[int]]) -> Iterator[Batch]:
        for batch in positions:
            locations = self.locations[np.asarray(batch, np.int64)]
            yield Batch(list(batch), partial(self._encode, locations), [None] * len(batch), {})

    def _encode(self, locations: NDArray[Any]) -> Annotations:
        import torch

        with torch.inference_mode():
            values = self.backend.network.annotations(self.cache.read(locations).to(self.backend.device))
        # A hard model's draws are keyed by the picture: here, by where its grid is kept.
        keys = (locations[:, 0].astype(np.int64) * 65_536 + locations[:, 1]).astype(np.uint32)
        return Annotations(values, self.backend.rows, self.backend.cols, keys)


def _flipped(folder: Path) -> bool:
    """Whether a cache holds mirror images too; what else made it is checked when it is opened."""
    try:
        return bool(json.loads((folder / "cache.json").read_text(encoding="utf-8"))["flip"])
    except (ValueError, KeyError, TypeError):
        return False
