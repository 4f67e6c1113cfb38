"""Captioning a stream of pictures with several threads, in order and with bounded memory.

Two threads read pictures. The other threads encode small parts of a batch, or search a whole batch, whichever is next
in the queue. So reading, encoding and searching overlap, and only a few batches are in memory at a time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption, Failure
from captioner.errors import CaptionerError
from captioner.images.limits import LIMITS, Limits
from captioner.images.pixels import Pixels
from captioner.images.reading import THUMBNAIL, ImageSource, Picture, load_for_model, source_name
from captioner.inference.backend import Annotations, Backend
from captioner.inference.batching import rounds
from captioner.inference.confidence import ConfidenceModel
from captioner.inference.search import SearchOptions, caption_of, search
from captioner.options import BATCH

PART = 8  # pictures that one thread encodes at a time
READERS = 2  # threads that read pictures
AHEAD = 2  # batches in work before the first one is returned

_Part = tuple[list[Picture | Failure], Annotations | None]  # pictures of a part, and annotations of the readable ones


@dataclass(frozen=True)
class CaptionStream:
    """Reads, encodes and captions the pictures of a stream, all with the same options."""

    backend: Backend
    options: SearchOptions
    threads: int = 1  # threads that may use the backend at once
    batch: int = BATCH
    limits: Limits = LIMITS
    keep_pictures: bool = False
    confidence: ConfidenceModel | None = None
    thumbnail: int = THUMBNAIL  # pixels of the longer side that captions keep of a picture without a file

    def run(self, sources: Iterable[ImageSource]) -> Iterator[Caption | Failure]:
        """Captions in the order of the sources, each as soon as it and those before it are finished."""
        return self.run_rounds(rounds(sources, self.batch, self.threads))

    def run_rounds(self, sources: Iterable[Sequence[Sequence[ImageSource]]]) -> Iterator[Caption | Failure]:
        """As `run`, for sources that are divided into batches already, in rounds as `rounds` makes them."""
        reading = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        working = ThreadPoolExecutor(self.threads, thread_name_prefix="caption")
        wait = True  # for the work that has begun, when the caller leaves early
        waiting: deque[Future[list[Caption | Failure]]] = deque()
        try:
            for batches in sources:
                waiting.extend(self._begin(batches, reading, working))
                while len(waiting) > (AHEAD if batches else 0):
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        except KeyboardInterrupt:
            wait = False  # a graph may take very long
            raise
        finally:
            reading.shutdown(wait=False, cancel_futures=True)
            working.shutdown(wait=wait, cancel_futures=True)

    def encode(self, pixels: NDArray[np.uint8]) -> Annotations:
        """Annotations of pictures (B, size, size, 3), for `captions`."""
        # None is the model's own way to attend, which may be to sample a cell.
        samples_cells = self.backend.hard and self.options.hard_attention in (None, "sampled")
        return self.backend.encode(pixels, keys=self.options.sample or samples_cells)

    def captions(self, pictures: Sequence[Picture], annotations: Annotations) -> list[Caption | Failure]:
        """The captions of pictures that are encoded."""
        results: list[Caption | Failure] = []
        found = search(self.backend, annotations, self.options)
        pooled = annotations.pooled if self.confidence is not None else [None] * len(found)
        for picture, hypotheses, mean in zip(pictures, found, pooled, strict=True):
            if hypotheses and not math.isfinite(hypotheses[0].score):
                results.append(Failure(picture.name, f"{picture.name}: the model computed no finite probabilities"))
            elif hypotheses:
                best, *others = (caption_of(hypothesis, self.backend, picture) for hypothesis in hypotheses)
                caption = replace(best, alternatives=tuple(others))
                results.append(caption if self.confidence is None else self.confidence.of(caption, mean))
            else:
                results.append(Failure(picture.name, f"{picture.name}: no caption satisfies all constraints at once"))
        return results

    def _begin(
        self, batches: Sequence[Sequence[ImageSource]], reading: Executor, working: Executor
    ) -> list[Future[list[Caption | Failure]]]:
        """Begin to read, encode and search the batches of a round.

        The pixels and annotations of a round are in memory as long as its futures. So only this method names them:
        variables of a generator would keep them while its caller works.
        """
        read = partial(
            _read,
            size=self.backend.image_size,
            keep=self.keep_pictures,
            thumbnail=self.thumbnail,
            limits=self.limits,
        )
        encoding = []
        for batch in batches:
            pictures = [reading.submit(read, source) for source in batch]
            part = min(PART, -(-len(batch) // self.threads))
            starts = range(0, len(batch), part)
            encoding.append([working.submit(self._encode, pictures[i : i + part]) for i in starts])
        # First in, first out: when a search starts, its parts are encoded or being encoded. So waiting for them cannot
        # block the threads that they need.
        return [working.submit(self._search, parts) for parts in encoding]

    def _encode(self, pictures: Sequence[Future[tuple[Picture, Pixels] | Failure]]) -> _Part:
        """Annotations of the pictures that could be read."""
        results: list[Picture | Failure] = []
        readable: list[Pixels] = []
        for future in pictures:
            picture = future.result()
            if isinstance(picture, Failure):
                results.append(picture)
            else:
                results.append(picture[0])
                readable.append(picture[1])
        return results, self.encode(np.stack(readable)) if readable else None

    def _search(self, parts: list[Future[_Part]]) -> list[Caption | Failure]:
        """The captions of a batch. Empties the list: the parts would be in memory beside their joined annotations."""
        encoded = [part.result() for part in parts]
        parts.clear()
        results = [result for part, _ in encoded for result in part]
        annotations = [values for _, values in encoded if values is not None]
        del encoded
        pictures = [result for result in results if isinstance(result, Picture)]
        captions = iter(self.captions(pictures, _joined(annotations)) if pictures else [])
        return [result if isinstance(result, Failure) else next(captions) for result in results]


def _read(
    source: ImageSource, size: int, keep: bool, thumbnail: int, limits: Limits
) -> tuple[Picture, Pixels] | Failure:
    """A picture and its pixels, or why it cannot be read.

    A future that held the exception would form a cycle with it, and so keep the bytes of the picture in memory until
    Python's collector runs.
    """
    try:
        return load_for_model(source, size, keep=keep, thumbnail=thumbnail, limits=limits)
    except CaptionerError as error:
        return Failure(source_name(source), str(error))


def _joined(parts: list[Annotations]) -> Annotations:
    """Several batches of annotations as one. Empties the list, so that each part is freed as soon as it is copied."""
    if len(parts) == 1:
        return parts.pop()
    first = parts[0]
    shape = (sum(len(part.values) for part in parts), *first.values.shape[1:])
    if isinstance(first.values, np.ndarray):
        values: Any = np.empty(shape, first.values.dtype)
    else:
        values = first.values.new_empty(shape)
    keys = [part.keys for part in parts if part.keys is not None]
    joined = replace(first, values=values, keys=np.concatenate(keys) if len(keys) == len(parts) else None)
    del first
    start = 0
    while parts:
        part = parts.pop(0)
        values[start : start + len(part.values)] = part.values
        start += len(part.values)
    return joined
