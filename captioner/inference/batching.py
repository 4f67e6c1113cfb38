"""Batches of a stream, and work on them by several threads in order.

A list is divided evenly. A slow source is not waited for: it gets smaller batches.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

IDLE = 0.05  # seconds without a new item after which an incomplete batch is returned

T = TypeVar("T")
U = TypeVar("U")


def rounds(sources: Iterable[T], size: int, workers: int) -> Iterator[list[list[T]]]:
    """Batches of up to `size` items, in rounds. The batches of a round are prepared together and processed in parallel.

    A round is one batch. The last round of a sequence has one batch per worker, of equal size, so that all workers
    finish together. An empty round means that the source has no new item yet.
    """
    if not isinstance(sources, Sequence):
        for batch in _batches_of_stream(sources, size):
            yield [batch] if batch else []
        return
    single = max(0, -(-len(sources) // size) - workers)  # rounds of one batch
    for start in range(0, single * size, size):
        yield [list(sources[start : start + size])]
    rest = list(sources[single * size :])
    share = max(1, -(-len(rest) // workers))
    if rest:
        yield [rest[start : start + share] for start in range(0, len(rest), share)]


def _batches_of_stream(sources: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; shorter or empty ones while a slow source has no new item."""
    items: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(4 * size)
    stopped = threading.Event()

    def put(item: tuple[T] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                items.put(item, timeout=1)
                return
            except queue.Full:
                continue

    def read() -> None:
        try:
            for source in sources:
                put((source,))
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    # A daemon thread, because a reader that waits for a silent pipe must not keep the program from ending.
    threading.Thread(target=read, daemon=True, name="sources").start()
    chunk: list[T] = []
    idle = False  # an empty batch was returned, so that finished results can be passed on
    try:
        while True:
            try:
                item = items.get(timeout=None if idle else IDLE)
            except queue.Empty:
                idle = not chunk
                yield chunk
                chunk = []
                continue
            idle = False
            if item is None:
                break
            if isinstance(item, BaseException):
                raise item
            chunk.append(item[0])
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
    finally:
        stopped.set()


def in_threads(work: Callable[[T], U], parts: Iterable[T], threads: int) -> Iterator[U]:
    """The results of `work` in the order of the parts. Only a few parts are taken ahead."""
    waiting: deque[Future[U]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="work")
    try:
        for part in parts:
            waiting.append(pool.submit(work, part))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
