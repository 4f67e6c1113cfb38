"""What machine figures were measured on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def processor() -> str:
    """As the system names it."""
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        return found[1].strip()
    return platform.processor() or platform.machine()


def hardware() -> str:
    return f"{processor()}, {os.cpu_count()} processors"


def hardware_in_a_name() -> str:
    """The same for names of files."""
    return re.sub(r"[^a-z0-9]+", "-", hardware().lower()).strip("-")
