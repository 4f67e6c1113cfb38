"""Does this machine do half precision? Some virtual machines say so and die of an illegal instruction."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

from captioner.errors import UsageError

_PROBE = """
import torch
x = torch.ones(32, 64, dtype=torch.{kind}, requires_grad=True)
torch.nn.functional.linear(x, torch.ones(64, 64, dtype=torch.{kind})).sum().backward()
"""


@cache
def trial(kind: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: an illegal instruction can't be caught."""
    return subprocess.run([sys.executable, "-c", _PROBE.format(kind=kind)], capture_output=True, text=True)


def works_on_cpu(kind: str) -> bool:
    return trial(kind).returncode == 0


def check(kind: str, device: str) -> None:
    """Refuse a precision that would end the program without a word."""
    if kind == "float32" or device != "cpu" or works_on_cpu(kind):
        return
    done = trial(kind)
    if done.returncode < 0:  # by a signal
        raise UsageError(
            f"training.precision: {kind} ends in an illegal instruction on this processor, though it says it knows "
            "it; use float32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment and try again"
        )
    why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise UsageError(f"training.precision: {kind} doesn't work here ({why}); use float32")
