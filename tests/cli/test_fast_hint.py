"""The note about --fast: once, for long jobs, where it would help."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from captioner.cli import fast_hint
from captioner.cli.fast_hint import AFTER, suggest_fast
from captioner.progress import ProgressBar


def notes(monkeypatch: pytest.MonkeyPatch, *, total: int, backend: str = "onnx", helps: bool = True) -> list[str]:
    """What is said while so many pictures are captioned, each in a tenth of a second."""
    said: list[str] = []
    clock = iter(range(10**6))
    monkeypatch.setattr("captioner.progress.time.monotonic", lambda: next(clock) / 10)
    monkeypatch.setattr(fast_hint, "say", said.append)
    monkeypatch.setattr(fast_hint, "is_quicker_in_8_bits", lambda manifest: helps)
    captioner: Any = SimpleNamespace(backend=SimpleNamespace(name=backend), manifest=object())
    progress = ProgressBar(total=total)
    for _ in range(min(total, 3 * AFTER)):
        progress.advance()
        suggest_fast(captioner, progress)
    return said


def test_a_long_job_gets_one_note_that_says_how_long_it_takes(monkeypatch):
    (note,) = notes(monkeypatch, total=AFTER + 1000)
    assert "this takes about 1:40 more; --fast" in note


@pytest.mark.parametrize(
    "changes", [{"total": AFTER + 500}, {"backend": "int8"}, {"backend": "torch"}, {"helps": False}, {"total": 10}]
)
def test_no_note_for_a_short_job_or_where_it_would_not_help(changes, monkeypatch):
    assert notes(monkeypatch, **{"total": AFTER + 1000, **changes}) == []
