"""The memory settings are applied where the C library is glibc."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from captioner.workarounds import malloc

GLIBC = platform.libc_ver()[0] == "glibc"
# Bytes that the system gave for single blocks: before, with a block of 4 MB, and after it was freed. A larger one was
# freed before that. Then, left to itself, glibc takes blocks of 4 MB from its heap and keeps them.
BLOCKS = """
import ctypes, numpy as np
from captioner.workarounds.malloc import keep_memory, return_memory
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


@pytest.mark.parametrize(
    ("settings", "size"), [("keep_memory", ()), ("return_memory", (2**20,)), ("use_one_arena", ()), ("return_now", ())]
)
def test_memory_settings_are_applied_with_glibc_and_refused_without_mallopt(
    monkeypatch: pytest.MonkeyPatch, settings: str, size: tuple[int, ...]
) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())  # a C library without mallopt
    assert getattr(malloc, settings)(*size) is False
    code = f"from captioner.workarounds import malloc; print(malloc.{settings}(*{size}))"
    assert _output(code) == str(GLIBC)


@pytest.mark.skipif(not GLIBC, reason="needs glibc")
@pytest.mark.parametrize(
    ("call", "returned"),
    [
        ("return_memory(2**20)", True),
        ("return_memory(2**20); return_memory(2**24)", True),  # the service, then its pictures
        ("", False),
        ("return_memory(2**20); keep_memory()", False),  # training, after its pictures are encoded
        ("keep_memory(); return_memory(2**20)", False),  # training that reads pictures in each step
    ],
)
def test_a_freed_tensor_is_returned_to_the_system_also_after_a_larger_one(call: str, returned: bool) -> None:
    before, with_block, after = map(int, _output(BLOCKS.format(call=call)).split())
    assert (with_block - before >= 4_000_000) == returned
    assert after == before


def _output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
