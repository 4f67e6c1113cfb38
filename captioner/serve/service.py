"""Service: the loaded models, and the rules by which work is accepted, timed and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Failure
from captioner.captioning import Captioner
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.evidence.blurring import blank
from captioner.images.inputs import PictureBytes
from captioner.images.pixels import Pixels
from captioner.images.reading import THUMBNAIL, Picture, load_for_model
from captioner.inference.streaming import READERS
from captioner.options import SearchOptions
from captioner.serve.batcher import Batcher, Job, QueueFull, Result
from captioner.serve.caption_request import CaptionRequest
from captioner.serve.problems import Problem
from captioner.serve.service_metrics import ServiceMetrics
from captioner.serve.service_settings import ServiceSettings
from captioner.text.sentences import sentence


@dataclass(frozen=True)
class Timings:
    """Where the time of a request went, in seconds."""

    decode: float
    caption: float  # waiting in the queue, encoding and search


class Service:
    """Captions for requests. `start` loads the models; until then `ready` is False."""

    def __init__(self, settings: ServiceSettings, metrics: ServiceMetrics) -> None:
        self.settings, self.metrics = settings, metrics
        self.batchers: dict[str, Batcher] = {}
        self.draining = False
        self.failure: CaptionerError | None = None  # why the models could not be loaded
        self.requests = 0  # requests accepted and not yet answered
        self.body_bytes = 0  # received with these requests
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")

    @property
    def ready(self) -> bool:
        return bool(self.batchers) and not self.draining

    @property
    def loading(self) -> bool:
        return not self.batchers and self.failure is None

    @property
    def full(self) -> bool:
        """Whether so many requests are in work that no queue can have room for one more."""
        return self.requests >= self.settings.queue * max(1, len(self.batchers))

    def _receiving(self) -> bool:
        """Whether requests are in work whose pictures have no room in a queue yet: their bodies are being read."""
        return self.requests > sum(batcher.pending for batcher in self.batchers.values())

    def start(self) -> None:
        """Load every model and caption a grey picture with it, so that the first request is not slower."""
        sentence(["can", "not"])  # imports nltk, which would stop the event loop for a second
        try:
            captioners = self._load()
        except CaptionerError as error:
            self.failure = error
            return
        except Exception as error:  # such as too little memory: without a model there is nothing to serve
            self.failure = CaptionerError(f"the models cannot be loaded ({type(error).__name__}: {error})")
            return
        self.batchers = {
            name: Batcher(
                name,
                captioner,
                self.metrics,
                batch=self.settings.batch,
                queue=self.settings.queue,
                max_wait=self.settings.max_wait / 1000,
                patience=self.settings.timeout / 2,
                coming=self._receiving,
            )
            for name, captioner in captioners.items()
        }

    def close(self) -> None:
        for batcher in self.batchers.values():
            batcher.close()
        self.readers.shutdown()

    def batcher(self, model: str | None) -> Batcher:
        """The batcher of a model; of the first one if the request names none."""
        if not self.batchers:
            raise Problem(503, "the models are still loading; try again in a moment", headers={"Retry-After": "1"})
        if model is None:
            return next(iter(self.batchers.values()))
        if model not in self.batchers:
            raise Problem(404, str(unknown("model", model[:100], self.batchers)))
        return self.batchers[model]

    async def caption(
        self, batcher: Batcher, asked: CaptionRequest, options: SearchOptions, *, long_side: int = THUMBNAIL
    ) -> tuple[list[Result], Timings]:
        """One result per picture, in order; a Failure for a picture that cannot be read.

        `long_side` bounds the copy of a picture that its caption keeps, in pixels; an overlay needs a larger one.
        """
        erased = asked.erased(batcher.captioner)
        try:
            with batcher.reserve(len(asked.pictures)):
                started = monotonic()
                with batcher.arriving():
                    decoded = await self._decode(batcher, asked.pictures, long_side)
                    jobs = [
                        item
                        if isinstance(item, Failure)
                        else Job(item[0], _without(item[1], erased), options, asked.word_alternatives)
                        for item in decoded
                    ]
                    submitted = [batcher.submit(job) for job in jobs if isinstance(job, Job)]
                queued = monotonic()
                captions = iter(await asyncio.gather(*map(asyncio.wrap_future, submitted)))
                results = [job if isinstance(job, Failure) else next(captions) for job in jobs]
        except QueueFull:
            raise self.queue_full() from None
        self.metrics.failures.labels("picture").inc(sum(isinstance(result, Failure) for result in results))
        return results, Timings(queued - started, monotonic() - queued)

    def queue_full(self) -> Problem:
        return self._overload("the queue is full: too many pictures are waiting; try again in a moment")

    def bodies_full(self) -> Problem:
        return self._overload("too many large requests are in work; try again in a moment")

    def _overload(self, detail: str) -> Problem:
        self.metrics.rejected.inc()
        return Problem(429, detail, headers={"Retry-After": "1"})

    def _load(self) -> dict[str, Captioner]:
        captioners: dict[str, Captioner] = {}
        for model in self.settings.models:
            captioner = Captioner.load(
                model, backend=self.settings.backend, device=self.settings.device, threads=self.settings.threads
            )
            captioner(np.full((64, 64, 3), 128, np.uint8))
            assert captioner.manifest is not None
            name = captioner.manifest.name
            if name in captioners:
                raise UsageError(f"--model {model}: another model is called {name!r} too")
            captioners[name] = captioner
        return captioners

    async def _decode(
        self, batcher: Batcher, pictures: Sequence[PictureBytes], long_side: int
    ) -> list[tuple[Picture, Pixels] | Failure]:
        """Decode outside the event loop."""
        size, limits = batcher.captioner.backend.image_size, self.settings.limits

        def decode(data: PictureBytes) -> tuple[Picture, Pixels] | Failure:
            try:
                return load_for_model(data, size, thumbnail=long_side, limits=limits)
            except CaptionerError as error:
                return Failure(data.name, str(error))

        loop = asyncio.get_running_loop()
        return list(await asyncio.gather(*(loop.run_in_executor(self.readers, decode, data) for data in pictures)))


def _without(pixels: Pixels, erased: NDArray[np.bool_] | None) -> Pixels:
    return pixels if erased is None else blank(pixels, erased)
