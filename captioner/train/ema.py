"""The exponential moving average of the learnt weights (EMA), which validation and `best/` use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from captioner.train.setup import TrainingSetup


class EMA:
    """LoadedRun where a decay is configured; otherwise everything here does nothing."""

    def __init__(self, setup: TrainingSetup, decay: float | None) -> None:
        self.learnt, self.decay = setup.learnt, decay
        self.tensors: dict[str, Tensor] = {k: v.detach().clone() for k, v in setup.learnt.items()} if decay else {}

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.decay is None:
            return
        # A young average follows quickly, so that the first weights don't linger.
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self.learnt.items():
            self.tensors[name].lerp_(parameter, 1 - decay)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """What a checkpoint holds; one that was written without an average leaves the weights as its beginning."""
        for name in self.tensors:
            self.tensors[name].copy_(tensors.get(name, self.learnt[name].detach()))

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The network with its averaged weights."""
        kept = {name: self.learnt[name].detach().clone() for name in self.tensors}
        for name, average in self.tensors.items():
            self.learnt[name].data.copy_(average)
        try:
            yield
        finally:
            for name, weights in kept.items():
                self.learnt[name].data.copy_(weights)
