"""The speed of an epoch: shown while it runs, logged at its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from captioner.progress import ProgressBar, duration
from captioner.train.checkpoint import TrainingState
from captioner.train.distributed import World
from captioner.train.logger import Logger


class EpochTimer:
    """Counts captions and seconds from the first batch on; the main process shows a progress bar."""

    def __init__(self, world: World, state: TrainingState, epochs: int, steps: int) -> None:
        self.world, self.state, self.epochs = world, state, epochs
        self.first, self.steps = state.position, steps
        self.captions, self.seconds, self.inside = 0, 0.0, 0.0
        self.began = time.monotonic()
        self.bar = ProgressBar(total=steps, plain_every=100) if world.is_main else None

    def __enter__(self) -> EpochTimer:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.clear()

    @contextmanager
    def step(self, captions: int) -> Iterator[None]:
        """One batch: forward and backward pass, and the update of the weights."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        self.inside += now - began
        self.seconds = now - self.began
        self.captions += captions

    def show(self, loss: float) -> None:
        if self.bar is not None:
            epoch, rate = f"epoch {self.state.epoch + 1}/{self.epochs}", self.captions / self.seconds
            self.bar.show(self.state.position, text=f"{epoch}, loss {loss:.2f}, {rate:.0f} captions/s")

    def log(self, logger: Logger) -> None:
        rate = self.captions * self.world.size / max(self.seconds, 1e-9)
        logger.timing(
            epoch=self.state.epoch + 1,
            steps=self.steps - self.first,
            seconds=round(self.seconds, 2),
            captions_per_second=round(rate, 2),
            # The share of the time that is not in forward pass, backward pass and optimizer.
            outside_share=round(1 - self.inside / self.seconds, 4) if self.seconds else 0.0,
        )
        if self.captions:
            logger.info(f"epoch {self.state.epoch + 1}: {duration(self.seconds)}, {rate:.0f} captions/s")
