"""Batcher: pictures of many requests are encoded and searched together.

Worker threads take what is waiting, up to a batch. While all of them are busy the queue grows, so the next batch is
larger: under load, batches are full, and a single client never waits for a second one. A thread waits for more
pictures only while some are on their way, and never longer than `max_wait`.

All pictures of a batch have the same options. Pictures with other options stay in the queue for the next thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from captioner.caption import Caption, Failure
from captioner.captioning import Captioner
from captioner.errors import CaptionerError
from captioner.evidence.word_evidence import with_likeliest_words
from captioner.images.pixels import Pixels
from captioner.images.reading import Picture
from captioner.inference.backend import Annotations
from captioner.inference.streaming import CaptionStream
from captioner.options import SearchOptions
from captioner.serve.service_metrics import ServiceMetrics

Result = Caption | Failure


class QueueFull(Exception):
    """The bounded queue has no room for the pictures of a request, or could not answer them in time."""


@dataclass
class Job:
    """One decoded picture on its way to a caption."""

    picture: Picture
    pixels: Pixels
    options: SearchOptions
    word_alternatives: bool = False  # whether words have the likeliest words at their position
    result: Future[Result] = field(default_factory=Future)
    queued: float = field(default_factory=time.monotonic)

    def fits(self, other: Job) -> bool:
        """Whether both can be in one batch."""
        return self.options == other.options and self.word_alternatives == other.word_alternatives


class Batcher:
    """The queue of one model, and the threads that work on it."""

    def __init__(
        self,
        name: str,
        captioner: Captioner,
        metrics: ServiceMetrics,
        *,
        batch: int,
        queue: int,
        max_wait: float,
        patience: float,
        coming: Callable[[], bool] = lambda: False,
    ) -> None:
        """`queue` bounds the pictures that are accepted and not yet answered; `max_wait` is in seconds.

        On a slow machine, fewer pictures are accepted: as many as are answered within `patience` seconds. `coming` says
        whether requests are being received whose pictures have not been reserved yet.
        """
        self.name, self.captioner, self.metrics = name, captioner, metrics
        self.batch, self.queue, self.max_wait, self.patience = batch, queue, max_wait, patience
        self.coming = coming
        self.pace = 0.0  # seconds per picture of late, all threads together; 0 is not known yet
        self._jobs: deque[Job] = deque()
        self._pending = 0  # pictures accepted and not yet answered
        self._arriving = 0  # requests whose pictures are being decoded
        self._idle = 0  # threads that wait for work
        self._closed = False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._work, name=f"caption-{name}-{i}", daemon=True)
            for i in range(captioner.threads)
        ]
        for thread in self._threads:
            thread.start()

    @contextmanager
    def reserve(self, pictures: int) -> Iterator[None]:
        """Room in the queue for the pictures of one request, from before they are decoded until they are answered."""
        with self._changed:
            if self._pending + pictures > self.queue or self._pending * self.pace > self.patience:
                raise QueueFull
            self._pending += pictures
        self.metrics.queue.labels(self.name).inc(pictures)
        try:
            yield
        finally:
            with self._changed:
                self._pending -= pictures
            self.metrics.queue.labels(self.name).dec(pictures)

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Around the decoding of a request's pictures: batches wait a moment for them."""
        with self._changed:
            self._arriving += 1
        try:
            yield
        finally:
            with self._changed:
                self._arriving -= 1
                self._changed.notify_all()

    @property
    def pending(self) -> int:
        """Pictures accepted and not yet answered."""
        return self._pending

    def submit(self, job: Job) -> Future[Result]:
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            self._jobs.append(job)
            self._changed.notify()
        return job.result

    def close(self) -> None:
        """Finish what is queued, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while jobs := self._take():
            wanted = [job for job in jobs if job.result.set_running_or_notify_cancel()]
            if wanted:
                self._caption(wanted)

    def _take(self) -> list[Job]:
        """The next batch; empty when the batcher is closed and nothing is queued."""
        with self._changed:
            self._idle += 1
            try:
                while not (self._jobs or self._closed):
                    self._changed.wait()
                    self._wait_for_more()
                # Threads that wait as well get their share, so that all processors have work.
                return self._pop(min(self.batch, -(-len(self._jobs) // self._idle)))
            finally:
                self._idle -= 1

    def _wait_for_more(self) -> None:
        deadline = time.monotonic() + self.max_wait
        while self._jobs and (self._arriving or self.coming()) and len(self._jobs) < self.batch:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _pop(self, count: int) -> list[Job]:
        """Up to `count` jobs with the options of the first one, in order."""
        batch: list[Job] = []
        others: deque[Job] = deque()
        while self._jobs and len(batch) < count:
            job = self._jobs.popleft()
            (batch if not batch or job.fits(batch[0]) else others).append(job)
        self._jobs.extendleft(reversed(others))
        return batch

    def _caption(self, jobs: list[Job]) -> None:
        now = time.monotonic()
        self.metrics.batch.labels(self.name).observe(len(jobs))
        for job in jobs:
            self.metrics.wait.labels(self.name).observe(now - job.queued)
        try:
            for job, result in zip(jobs, self._search(jobs), strict=True):
                self.metrics.captions.labels(self.name).inc(isinstance(result, Caption))
                job.result.set_result(result)
        except Exception as error:  # a defect: these requests get status 500, and the thread continues
            for job in jobs:
                if not job.result.done():
                    job.result.set_exception(error)
        pace = (time.monotonic() - now) / len(jobs) / len(self._threads)
        self.pace += (pace - self.pace) * (0.2 if self.pace else 1.0)

    def _search(self, jobs: list[Job]) -> list[Result]:
        """The captions of a batch. A picture that cannot be captioned does not affect the others."""
        stream = CaptionStream(self.captioner.backend, jobs[0].options, confidence=self.captioner.confidence)
        try:
            annotations = stream.encode(np.stack([job.pixels for job in jobs]))
            results = stream.captions([job.picture for job in jobs], annotations)
            return self._with_words(jobs, annotations, results) if jobs[0].word_alternatives else results
        except CaptionerError as error:
            if len(jobs) > 1:
                return [result for job in jobs for result in self._search([job])]
            return [Failure(jobs[0].picture.name, str(error))]

    def _with_words(self, jobs: list[Job], annotations: Annotations, results: list[Result]) -> list[Result]:
        """The captions with the likeliest words at each position. Failures stay as they are."""
        backend, options = self.captioner.backend, jobs[0].options
        captions = [result for result in results if isinstance(result, Caption)]
        if len(captions) == len(results):
            return [*with_likeliest_words(backend, annotations, captions, options)]
        return [
            with_likeliest_words(backend, one, [result], options)[0] if isinstance(result, Caption) else result
            for one, result in zip(annotations.singly(), results, strict=True)
        ]
