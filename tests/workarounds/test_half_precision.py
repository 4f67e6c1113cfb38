"""A precision that the processor can't use is refused before a run starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from captioner.errors import UsageError
from captioner.workarounds import half_precision
from captioner.workarounds.half_precision import check_precision, multiplies_bfloat16, resolve_precision


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


@pytest.mark.parametrize(
    ("features", "probe", "precision"),
    [
        ({"avx512_bf16": True}, "pass", "bfloat16"),
        ({"amx_bf16": True, "avx512_bf16": False}, "pass", "bfloat16"),
        ({"avx512_bf16": True}, "import os; os.abort()", "float32"),  # the processor claims what it doesn't have
        ({"avx2": True, "avx512_bf16": False}, "pass", "float32"),
        ({}, "pass", "float32"),
    ],
)
def test_auto_is_bfloat16_where_the_processor_multiplies_in_it(
    features: dict[str, bool], probe: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: features)
    monkeypatch.setattr(half_precision, "_PROBE", probe + "  # {precision}")
    assert resolve_precision("auto", "cpu") == precision
    assert resolve_precision("float32", "cpu") == "float32"
    assert multiplies_bfloat16(features) == any(features.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
