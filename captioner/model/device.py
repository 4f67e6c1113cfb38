"""The device that torch runs on."""

from __future__ import annotations

import torch

from captioner.errors import UsageError


def usable(name: str | None, local_rank: int | None = None) -> torch.device:
    """The named device, if torch can use it here. Without a name: a GPU if available, else the CPU.

    With several processes on one machine, each gets the GPU of its rank and touches no other.
    """
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and local_rank is not None:
        name = f"cuda:{local_rank}"
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise UsageError(f"--device {name}: torch can't use it here ({reason})") from None
    return device
