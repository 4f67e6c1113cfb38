"""The progress bar of every command: drawn by rich on a terminal, silent or a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

REFRESH = 0.1  # seconds between two drawings


class ProgressBar:
    """Shows on standard error how much is done, how fast, and how long the rest takes.

    Where standard error is not a terminal, nothing is shown. With `plain_every`, a plain line is printed there at the
    first call, whenever that many more are done, and at the end: that suits log files.
    """

    def __init__(
        self, label: str = "", unit: str = "pictures", *, total: int | None = None, plain_every: int | None = None
    ) -> None:
        self.label, self.unit, self.total, self.plain_every = label, unit, total, plain_every
        self.done = 0
        self.seconds_left: float | None = None  # None while the speed or the total is not known
        self._start: tuple[float, int] | None = None  # time and count at the first call
        self._drawn_at = 0.0
        self._plain_lines = -1  # multiples of `plain_every` done at the last plain line
        self._bar = _terminal_bar() if sys.stderr.isatty() else None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def advance(self) -> None:
        """One more is done."""
        self.show(self.done + 1)

    def show(self, done: int, total: int | None = None, text: str | None = None) -> None:
        """So many are done; `text` replaces the label and the speed."""
        now = time.monotonic()
        self.done, self.total = done, self.total if total is None else total
        start, first = self._start = self._start or (now, done)
        rate = (done - first) / (now - start) if now > start else 0.0
        if text is None:
            text = ", ".join(filter(None, [self.label, f"{rate:.1f} {self.unit}/s" if rate else ""]))
        self.seconds_left = (self.total - done) / rate if rate and self.total is not None else None
        left = f"{duration(self.seconds_left)} left" if self.seconds_left is not None else ""
        if self._bar is not None:
            if now - self._drawn_at >= REFRESH or done == self.total:
                self._drawn_at = now
                self._bar.update(self._bar.task_ids[0], completed=done, total=self.total, text=text, left=left)
                self._bar.start()
                self._bar.refresh()
        elif self.plain_every is not None and (done // self.plain_every > self._plain_lines or done == self.total):
            self._plain_lines = done // self.plain_every
            count = f"{done}" if self.total is None else f"{done}/{self.total}"
            print(", ".join(filter(None, [f"{count} {text}".rstrip(), left])), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the bar away, before other output and at the end; the next call of `show` brings it back."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.stop()
            self._drawn_at = 0.0


def _terminal_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.fields[text]}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=Console(file=sys.stderr),
        transient=True,
        auto_refresh=False,  # no thread: `clear` and `show` are called once per picture
        redirect_stdout=False,  # captions on standard output must not pass through this console
        redirect_stderr=False,
    )
    bar.add_task("", total=None, text="", left="")
    return bar


def duration(seconds: float) -> str:
    """A duration as people write it: 1:02:03 or 2:03."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
