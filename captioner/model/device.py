"""The device that torch works on."""

from __future__ import annotations

import torch

from captioner.errors import UsageError


def usable(name: str | None, local_rank: int | None = None) -> torch.device:
    """The device asked for, if torch can use it here; a GPU where there is one and nothing is asked.

    Of several processes on one machine each has the GPU of its rank, and touches no other.
    """
    chosen = name or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cuda" and local_rank is not None:
        chosen = f"cuda:{local_rank}"
    try:
        device = torch.device(chosen)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise UsageError(f"--device {chosen}: torch can't use it here ({reason})") from None
    return device
