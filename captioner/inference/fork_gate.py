"""No fork while a graph runs.

A child process has only the thread that forked. If another thread was running a graph at that moment, the child keeps
the locks that this thread held inside onnxruntime, and the child's first graph would wait for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0  # seconds that a fork waits for graphs; one that runs without end must not stop it for ever


class ForkGate:
    """Threads enter it to run a graph. A fork waits until it is empty, and keeps it closed meanwhile."""

    def __init__(self) -> None:
        self.open_again()

    def open_again(self) -> None:
        """For a child process, which has none of the threads that were inside."""
        self._inside = 0
        self._changed = threading.Condition(threading.Lock())

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._changed:
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Wait for the graphs that run, and let no other begin."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._inside, PATIENCE)

    def open(self) -> None:
        self._changed.release()


gate = ForkGate()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=gate.close, after_in_parent=gate.open, after_in_child=gate.open_again)
