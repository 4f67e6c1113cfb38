"""The exponential moving average of the learnt weights (EMA), which validation and `best/` use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from captioner.train.setup import Setup


class Average:
    """Kept where a decay is configured; otherwise everything here does nothing."""

    def __init__(self, setup: Setup, decay: float | None) -> None:
        self.setup, self.decay = setup, decay
        self.tensors: dict[str, Tensor] = {k: v.detach().clone() for k, v in setup.learnt()} if decay else {}

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.decay is None:
            return
        # A young average follows quickly, so that the first weights don't linger.
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, parameter in self.setup.learnt():
            self.tensors[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The network with its averaged weights."""
        kept: dict[str, Tensor] = {}
        for name, parameter in self.setup.learnt() if self.tensors else ():
            kept[name] = parameter.detach().clone()
            parameter.data.copy_(self.tensors[name])
        try:
            yield
        finally:
            for name, parameter in self.setup.learnt() if kept else ():
                parameter.data.copy_(kept[name])
