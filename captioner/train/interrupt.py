"""Ctrl-C as a wish that the loop fulfils between two steps."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Set by SIGINT or SIGTERM; a second one stops at once, without saving."""

    GRACE = 2.0  # seconds: torchrun passes on to its processes the Ctrl-C that they have got already

    def __init__(self) -> None:
        self.asked = False
        self.since = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.asked and now - self.since > self.GRACE:
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self.since = True, now


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Signals are caught inside; what was there before is put back after."""
    interrupt = Interrupt()
    before = {number: signal.signal(number, interrupt.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
