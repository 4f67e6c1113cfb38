"""The memory settings are applied where the C library is glibc."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable

import pytest

from captioner.workarounds.malloc import keep_memory, return_memory

GLIBC = platform.libc_ver()[0] == "glibc"
# Bytes that the system gave for single blocks: before, with a block of 4 MB, and after it was freed. A larger one was
# freed before that. Then, left to itself, glibc takes blocks of 4 MB from its heap and keeps them.
BLOCKS = """
import ctypes, numpy as np
from captioner.workarounds.malloc import return_memory
libc, names = ctypes.CDLL(None), "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
libc.mallinfo2.restype = Info
{call}
large = np.ones(16_000_000, np.uint8)
del large
figures = [libc.mallinfo2().hblkhd]
block = np.ones(4_000_000, np.uint8)
figures.append(libc.mallinfo2().hblkhd)
del block
print(*figures, libc.mallinfo2().hblkhd)
"""


@pytest.mark.parametrize("settings", [keep_memory, return_memory])
def test_memory_settings_are_applied_with_glibc_and_refused_without_mallopt(
    monkeypatch: pytest.MonkeyPatch, settings: Callable[[], bool]
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())  # a C library without mallopt
    assert settings() is False
    code = f"from captioner.workarounds.malloc import {settings.__name__} as settings; print(settings())"
    assert _output(code) == str(GLIBC)


@pytest.mark.skipif(not GLIBC, reason="needs glibc")
@pytest.mark.parametrize(("call", "returned"), [("return_memory()", True), ("", False)])
def test_a_freed_tensor_is_returned_to_the_system_also_after_a_larger_one(call: str, returned: bool) -> None:
    before, with_block, after = map(int, _output(BLOCKS.format(call=call)).split())
    assert (with_block - before >= 4_000_000) == returned
    assert after == before


def _output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
