"""A line of progress on a terminal's standard error; silent everywhere else."""

from __future__ import annotations

import sys
import time


class Progress:
    """Counts; `clear` takes the line away before other output, `show` puts it back."""

    def __init__(self, total: int | None) -> None:
        self.total, self.done, self.began, self.drawn = total, 0, time.monotonic(), 0.0
        self.on = sys.stderr.isatty()

    def advance(self) -> None:
        self.done += 1
        self.show()

    def show(self) -> None:
        now = time.monotonic()
        if not self.on or now - self.drawn < 0.1:
            return
        self.drawn = now
        rate = self.done / max(now - self.began, 1e-6)
        line = f"{self.done}" if self.total is None else f"{self.done}/{self.total}"
        line += f" pictures, {rate:.1f} a second"
        if self.total and self.done:
            left = int((self.total - self.done) / rate)
            line += f", {left // 60}:{left % 60:02d} left"
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self.on and self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.drawn = 0.0
