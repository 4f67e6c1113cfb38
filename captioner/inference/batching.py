"""What comes in is cut into batches, evenly where the number is known, without waiting where it comes slowly; and
worked on by several threads, in order.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

IDLE = 0.05  # seconds without anything new after which a batch is not waited for any longer

T = TypeVar("T")
U = TypeVar("U")


def rounds(sources: Iterable[T], size: int, workers: int) -> Iterator[list[list[T]]]:
    """Batches of up to `size` in rounds: those of a round are best prepared together and then worked on at once.

    A round is one batch. The last round of a sequence has one for each worker, equally large, so that all have
    work to the end. An empty round says that the source has nothing more to give just now.
    """
    if not isinstance(sources, Sequence):
        for batch in _as_they_come(sources, size):
            yield [batch] if batch else []
        return
    alone = max(0, -(-len(sources) // size) - workers)
    for start in range(0, alone * size, size):
        yield [list(sources[start : start + size])]
    rest = list(sources[alone * size :])
    share = max(1, -(-len(rest) // workers))
    if rest:
        yield [rest[start : start + share] for start in range(0, len(rest), share)]


def _as_they_come(sources: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size`; fewer, or none, when a slow source has nothing more to give just now."""
    coming: queue.Queue[tuple[T] | BaseException | None] = queue.Queue(4 * size)
    stopped = threading.Event()

    def put(item: tuple[T] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                coming.put(item, timeout=1)
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

    # A daemon: a reader that is stuck in a silent pipe must not keep the program from ending.
    threading.Thread(target=read, daemon=True, name="sources").start()
    chunk: list[T] = []
    idle = False  # whether the empty chunk that lets results through has been given
    try:
        while True:
            try:
                item = coming.get(timeout=None if idle else IDLE)
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
    """What the work makes of each part, in order; of the parts only a few are taken ahead."""
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
