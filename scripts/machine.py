"""Names the hardware that a benchmark ran on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def processor() -> str:
    """The processor's model name."""
    info = Path("/proc/cpuinfo")
    if info.exists() and (match := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        return match[1].strip()
    return platform.processor() or platform.machine()


def hardware() -> str:
    return f"{processor()}, {os.cpu_count()} processors"


def hardware_slug() -> str:
    """The hardware as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", hardware().lower()).strip("-")
