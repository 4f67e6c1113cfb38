"""Several processes, as `torchrun` starts them: who am I, and what needs all of us."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from captioner.model.device import usable


@dataclass(frozen=True)
class World:
    """This process among all; alone where torchrun didn't start it."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """Only the leader writes files and speaks."""
        return self.rank == 0

    def total(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def totals(self, values: dict[str, float]) -> dict[str, float]:
        """The sum over all processes of each of several numbers."""
        if self.size == 1:
            return values
        names = sorted(values)
        sums = self.total(torch.tensor([values[name] for name in names], dtype=torch.float64, device=self.device))
        return dict(zip(names, sums.tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """Everyone's value, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def any(self, flag: bool) -> bool:
        """Whether anyone's flag is set (a signal reaches the processes at different steps)."""
        return bool(self.total(torch.tensor(float(flag), device=self.device)).item()) if self.size > 1 else flag

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def join(device: str | None) -> Iterator[World]:
    """The world torchrun's environment describes: gloo on CPUs, nccl on GPUs."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    chosen = usable(device, int(os.environ.get("LOCAL_RANK", "0")) if size > 1 else None)
    if size > 1:
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        # DistributedDataParallel imports this module, whose functions keep the group there is at the time as a
        # default. Imported now, they keep none: the group ends when it is destroyed, and none of its threads is
        # left to bring the process down while it ends.
        importlib.import_module("torch.distributed.nn.functional")
        # The others wait while the leader encodes what is not yet cached, which may take longer than torch's
        # half an hour. A process that dies is torchrun's to notice.
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=timedelta(days=1))
    try:
        yield World(rank, size, chosen)
    finally:
        if size > 1:
            dist.destroy_process_group()
