"""A probe for processors that announce half precision but do not have it.

Some virtual machines report the instructions for bfloat16 or float16 and then end the process with an illegal
instruction. Python can't catch that, so a child process tries the precision first.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache

import torch

from captioner.errors import UsageError

_PROBE = """
import torch
x = torch.ones(32, 64, dtype=torch.{precision}, requires_grad=True)
torch.nn.functional.linear(x, torch.ones(64, 64, dtype=torch.{precision})).sum().backward()
"""


def check_precision(precision: str, device: str) -> None:
    """Refuse a precision that would end the process without a message. Only CPUs are tried."""
    if precision == "float32" or device != "cpu" or works_on_cpu(precision):
        return
    result = _probe(precision)
    if result.returncode < 0:  # ended by a signal
        raise UsageError(
            f"training.precision: {precision} ends in an illegal instruction on this processor, which claims to "
            "support it; use float32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment and try again"
        )
    reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise UsageError(f"training.precision: {precision} does not work here ({reason}); use float32")


def resolve_precision(precision: str, device: str) -> str:
    """`auto` is bfloat16 where the device multiplies in it, otherwise float32."""
    if precision != "auto":
        return precision
    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    capabilities = getattr(torch.cpu, "get_capabilities", dict)  # older releases of torch do not have it
    has_products = device == "cpu" and multiplies_bfloat16(capabilities())
    return "bfloat16" if has_products and works_on_cpu("bfloat16") else "float32"


def multiplies_bfloat16(capabilities: Mapping[str, object]) -> bool:
    """Whether a processor with these features has products of bfloat16. Without them, bfloat16 is slower than float32.

    On ARM, torch does not say: there float32 stays.
    """
    return any(bool(capabilities.get(name)) for name in ("avx512_bf16", "amx_bf16"))


def works_on_cpu(precision: str) -> bool:
    return _probe(precision).returncode == 0


@cache
def _probe(precision: str) -> subprocess.CompletedProcess[str]:
    """The result of a small product and its gradient, in a child process."""
    code = _PROBE.format(precision=precision)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
