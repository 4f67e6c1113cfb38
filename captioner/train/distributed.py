"""The processes that `torchrun` started, and what they do together."""

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
    """This process among all of them. Without torchrun it is the only one."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        """The main process alone writes files and prints."""
        return self.rank == 0

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return value

    def sums(self, values: dict[str, float]) -> dict[str, float]:
        """The sum over all processes, for each of several numbers."""
        if self.size == 1:
            return values
        names = sorted(values)
        sums = self.sum(torch.tensor([values[name] for name in names], dtype=torch.float64, device=self.device))
        return dict(zip(names, sums.tolist(), strict=True))

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process (a signal reaches the processes at different steps)."""
        return bool(self.sum(torch.tensor(float(flag), device=self.device)).item()) if self.size > 1 else flag

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def join(device: str | None) -> Iterator[World]:
    """The world that torchrun's environment variables describe: gloo on CPUs, nccl on GPUs."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    own_device = usable(device, int(os.environ.get("LOCAL_RANK", "0")) if size > 1 else None)
    if size > 1:
        if own_device.type == "cuda":
            torch.cuda.set_device(own_device)
        # DistributedDataParallel imports this module, whose functions have the current process group as a default
        # argument. Imported before the group exists, they don't keep it alive: its threads end when it is destroyed,
        # and can't crash the process while it exits.
        importlib.import_module("torch.distributed.nn.functional")
        # The other processes wait while the main one encodes images, which may take longer than torch's default of
        # half an hour. torchrun itself notices a process that dies.
        dist.init_process_group("nccl" if own_device.type == "cuda" else "gloo", timeout=timedelta(days=1))
    try:
        yield World(rank, size, own_device)
    finally:
        if size > 1:
            dist.destroy_process_group()
