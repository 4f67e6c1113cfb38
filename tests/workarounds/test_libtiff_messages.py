"""Damaged TIFF files cost one error of ours, and no line of libtiff."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from captioner.errors import CaptionerError
from captioner.images.reading import read_image
from captioner.workarounds.libtiff_messages import silence_libtiff


def test_a_damaged_tiff_file_writes_nothing_to_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = io.BytesIO()
    Image.effect_noise((80, 60), 50).save(data, "TIFF", compression="tiff_lzw")
    damaged = bytearray(data.getvalue())
    damaged[8:600] = bytes(592)  # compressed data
    (tmp_path / "damaged.tif").write_bytes(damaged)
    with pytest.raises(CaptionerError, match=r"damaged\.tif"):
        read_image(tmp_path / "damaged.tif")
    assert capfd.readouterr().err == ""


def test_without_a_shared_libtiff_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    silence_libtiff.cache_clear()
    assert silence_libtiff() is False
    silence_libtiff.cache_clear()
