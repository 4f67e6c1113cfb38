"""Limits for reading a picture: pixels, memory and time. A header can claim anything, so it is checked first."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from captioner.errors import CaptionerError
from captioner.workarounds.malloc import PICTURES, return_memory, return_now

PIXEL_LIMIT = 200_000_000  # about 14,000 x 14,000
MEMORY_LIMIT = 512  # megabytes
SECONDS_PER_PICTURE = 10.0


@dataclass(frozen=True)
class Limits:
    """What a picture may cost. `megabytes` are for all pictures that are being decoded at one time."""

    pixels: int = PIXEL_LIMIT
    megabytes: int = MEMORY_LIMIT
    seconds: float = SECONDS_PER_PICTURE

    def check_pixels(self, name: str, width: int, height: int) -> None:
        if width * height > self.pixels:
            raise CaptionerError(
                f"{name}: {width}x{height} is more than the limit of {self.pixels:,} pixels; "
                "raise it with --pixel-limit (pixel_limit=... in Python) if you trust the file"
            )
        if width < 1 or height < 1:
            raise CaptionerError(f"{name}: the picture has no pixels")

    def check_memory(self, name: str, width: int, height: int, needed: int) -> None:
        if needed > self.megabytes * 1_000_000:
            raise CaptionerError(
                f"{name}: to decode {width}x{height} pixels of this format takes about {needed / 1e6:,.0f} MB, more "
                f"than the limit of {self.megabytes:,} MB; raise it with --memory-limit (memory_limit=... in Python) "
                "if you trust the file, or make the picture smaller"
            )


LIMITS = Limits()
LARGE = 64_000_000  # bytes of a picture before which freed memory is returned: no ordinary photo takes so many


class MemoryBudget:
    """Counts the bytes that all threads take for decoding. A picture that doesn't fit beside the others waits.

    First come, first served: else small pictures that keep arriving could make a large one wait for ever.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew: a forked process has none of the threads that were reading."""
        self._taken = 0
        self._returns_memory = False
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        """Number of pictures that wait."""
        return len(self._waiting)

    @contextmanager
    def reserve(self, needed: int, limits: Limits) -> Iterator[float]:
        """Yields the seconds that the picture had to wait."""
        if not self._returns_memory:  # else the blocks of pictures that were decoded before add up
            self._returns_memory = True
            return_memory(PICTURES)
        start = time.monotonic()
        ticket = object()

        def my_turn() -> bool:
            fits = not self._taken or self._taken + needed <= limits.megabytes * 1_000_000
            return fits and self._waiting[0] is ticket

        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(my_turn)
                if needed > LARGE:
                    return_now()
                self._taken += needed
            finally:  # also after Ctrl-C
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield time.monotonic() - start
        finally:
            with self._changed:
                self._taken -= needed
                self._changed.notify_all()


memory_budget = MemoryBudget()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=memory_budget.forget)


class TimedFile:
    """A file that can't be read any more when the picture's time is over.

    Pillow reads headers in small pieces and feeds its decoders block by block, so this ends every parser that a file
    keeps busy, without a second thread.
    """

    def __init__(self, file: IO[bytes], name: str, limits: Limits) -> None:
        self._file, self._name, self._limits = file, name, limits
        self._end = time.monotonic() + limits.seconds

    def allow(self, seconds: float) -> None:
        """Give the picture more time, because it had to wait for others."""
        self._end += seconds

    def check_time(self) -> None:
        if time.monotonic() > self._end:
            raise CaptionerError(
                f"{self._name}: reading it takes longer than {self._limits.seconds:g} seconds; raise the limit with "
                "--seconds-per-picture (seconds_per_picture=... in Python) if you trust the file"
            )

    def read(self, size: int = -1) -> bytes:
        self.check_time()
        return self._file.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._file.seek(position, whence)

    def tell(self) -> int:
        return self._file.tell()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
