"""What the processor can compute quickly."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# Its flags for products of 8-bit numbers that are summed up at once: VNNI of x86, dot products of ARM.
_PRODUCTS = {"avx512_vnni", "avx_vnni", "asimddp"}


@cache
def has_8_bit_products() -> bool:
    """Whether 8-bit graphs are faster than exact ones here. False where it cannot be found out, as on Windows."""
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    return not _PRODUCTS.isdisjoint(features_of(CPUINFO))


def features_of(cpuinfo: Path) -> set[str]:
    """The features of the first processor in a file of Linux's form; none if there is no such file."""
    try:
        match = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return set()
    return set(match[1].split()) if match else set()
