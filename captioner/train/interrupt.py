"""Turns Ctrl-C into a stop request that the trainer honours after the current step."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Set by SIGINT or SIGTERM. A second signal stops at once, without saving."""

    GRACE = 2.0  # seconds: torchrun sends its processes the Ctrl-C that the terminal has already sent them

    def __init__(self) -> None:
        self.requested = False
        self.since = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested and now - self.since > self.GRACE:
            raise KeyboardInterrupt
        if not self.requested:
            self.requested, self.since = True, now


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Handles the signals inside the block, and restores the previous handlers after it."""
    interrupt = Interrupt()
    previous = {number: signal.signal(number, interrupt.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
