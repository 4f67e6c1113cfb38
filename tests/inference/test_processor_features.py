"""The features of processors, from files as Linux writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.inference import processor_features
from captioner.inference.processor_features import features_of, has_8_bit_products

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 {}\nbugs\t\t: none\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd {}\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("text", "has_products"),
    [
        (X86.format("avx512_vnni"), True),
        (X86.format("avx_vnni"), True),
        (X86.format("avx512f"), False),
        (ARM.format("asimddp"), True),
        (ARM.format("aes"), False),
        ("", False),
    ],
)
def test_8_bit_products_are_found_in_the_features_of_the_processor(text, has_products, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(processor_features, "CPUINFO", tmp_path / "cpuinfo")
    has_8_bit_products.cache_clear()
    assert has_8_bit_products() == has_products
    has_8_bit_products.cache_clear()


def test_without_such_a_file_nothing_is_assumed(tmp_path: Path) -> None:
    assert features_of(tmp_path / "none") == set()
