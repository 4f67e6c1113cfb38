"""Progress on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Bar:
    """A progress bar on a terminal; a plain line now and then elsewhere."""

    def __init__(self, total: int, *, every: int = 100) -> None:
        self.console = Console(file=sys.stderr)
        self.total, self.every = total, every
        self.said = -1  # how many times `every` had been done when the last plain line was printed
        self.progress: Progress | None = None
        if self.console.is_terminal:
            self.progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.progress.add_task("", total=total)
            self.progress.start()

    def show(self, done: int, text: str, left: float | None = None) -> None:
        """`left` is the time left in seconds, said in the plain form."""
        if self.progress is not None:
            self.progress.update(self.task, completed=done, description=text)
        elif done // self.every > self.said or done == self.total:
            self.said = done // self.every
            rest = f", {clock(left)} left" if left is not None else ""
            print(f"{done}/{self.total} {text}{rest}", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()


def clock(seconds: float) -> str:
    """A duration as people read it: 1:02:03 or 2:03."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class encoding_bar:
    """Progress of encoding, with images a second and the time left, shown once there is something to do."""

    def __enter__(self) -> Callable[[int, int], None]:
        self.bar: Bar | None = None
        return self.show

    def show(self, done: int, total: int) -> None:
        if self.bar is None:
            self.bar = Bar(total, every=1024)
            self.began, self.first = time.monotonic(), done
        rate = (done - self.first) / max(time.monotonic() - self.began, 1e-9)
        left = (total - done) / rate if rate else None
        self.bar.show(done, f"encoding, {rate:.0f} images/s", left)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
