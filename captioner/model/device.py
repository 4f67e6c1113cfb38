"""The device that torch works on."""

from __future__ import annotations

import torch

from captioner.errors import UsageError


def usable(name: str | None) -> torch.device:
    """The device asked for, if torch can use it here; a GPU where there is one and nothing is asked."""
    chosen = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(chosen)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UsageError(f"--device {chosen}: torch can't use it here ({reason})") from None
    return device
