"""The pause before a request is made again."""

from __future__ import annotations

import threading

from captioner.data.download.http import PassingError

PAUSE = 1.0  # seconds before the second attempt; doubled before each further one
LONGEST_PAUSE = 60.0  # also if the server asks for more


def pause_after(error: PassingError, attempts: int, stop: threading.Event) -> None:
    """Wait after the failed attempt of this number, as long as the server asks, or until `stop` is set."""
    stop.wait(min(max(error.wait, PAUSE * 2 ** (attempts - 1)), LONGEST_PAUSE))
