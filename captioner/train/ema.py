"""The exponential moving average (EMA) of the trained weights, which validation and `best/` use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class EMA:
    """Does nothing without a decay.

    torch's AveragedModel replaces the average by the weights at its first update, counts updates instead of steps, and
    copies the frozen encoder too: runs would not resume from existing checkpoints. Only its update rule is used.
    """

    def __init__(self, parameters: dict[str, nn.Parameter], decay: float | None) -> None:
        self.parameters, self.decay = parameters, decay
        self.tensors: dict[str, Tensor] = {}
        if decay is not None:
            self.tensors = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        if self.decay is None:
            return
        # The decay starts small, so that the average soon forgets the initial weights.
        decay = min(self.decay, (1 + step) / (10 + step))
        update = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        update(list(self.tensors.values()), list(self.parameters.values()), step)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The averages of a checkpoint. If it has none, the average starts from the weights."""
        for name in self.tensors:
            self.tensors[name].copy_(tensors.get(name, self.parameters[name].detach()))

    def adopt(self, names: Iterable[str]) -> None:
        """Set these weights to their averages."""
        for name in self.tensors.keys() & set(names):
            self.parameters[name].data.copy_(self.tensors[name])

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The network has its averaged weights inside the block."""
        trained = {name: self.parameters[name].detach().clone() for name in self.tensors}
        for name, average in self.tensors.items():
            self.parameters[name].data.copy_(average)
        try:
            yield
        finally:
            for name, weights in trained.items():
                self.parameters[name].data.copy_(weights)
