"""A precision that the processor can't use is refused before a run starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from captioner.errors import UsageError
from captioner.workarounds import half_precision
from captioner.workarounds.half_precision import check_precision


@pytest.fixture(autouse=True)
def fresh_probe() -> Iterator[None]:
    half_precision._probe.cache_clear()
    yield
    half_precision._probe.cache_clear()


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("import os; os.abort()", "bfloat16 ends in an illegal instruction"),
        ("raise OSError('no torch')", r"bfloat16 does not work here \(OSError: no torch\)"),
    ],
)
def test_a_precision_that_ends_the_process_is_refused(
    probe: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_precision, "_PROBE", probe + "  # {precision}")
    with pytest.raises(UsageError, match=message):
        check_precision("bfloat16", "cpu")


@pytest.mark.parametrize(("precision", "device"), [("float32", "cpu"), ("bfloat16", "cuda")])
def test_float32_and_other_devices_are_not_tried(precision: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_precision, "_PROBE", "raise OSError('tried')  # {precision}")
    check_precision(precision, device)


def test_the_probe_itself_runs_in_float32() -> None:
    assert half_precision.works_on_cpu("float32")
