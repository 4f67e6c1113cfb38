"""The memory settings are applied where the C library is glibc."""

from __future__ import annotations

import platform

import pytest

from captioner.workarounds.malloc import keep_memory


def test_memory_settings_are_applied_with_glibc_and_refused_without_mallopt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep_memory() == (platform.libc_ver()[0] == "glibc")
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())  # a C library without mallopt
    assert keep_memory() is False
