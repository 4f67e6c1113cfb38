"""Devices: those that torch can use here, and an error for the others."""

from __future__ import annotations

import pytest
import torch

from captioner.errors import UsageError
from captioner.model.device import usable


def test_the_cpu_is_usable_and_without_a_name_a_device_is_selected() -> None:
    assert usable("cpu") == torch.device("cpu")
    assert usable(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["nonsense", "meta", "cuda:99", "hpu"])
def test_unusable_devices_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UsageError, match=rf"--device {name}: torch can't use it here \(.+\)$"):
        usable(name)


def test_each_process_touches_only_the_gpu_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []

    def ones(count: int, device: torch.device) -> torch.Tensor:
        touched.append(str(device))
        return torch.zeros(count)

    monkeypatch.setattr(torch, "ones", ones)
    assert usable("cuda", local_rank=2) == torch.device("cuda:2")
    assert usable("cuda:1", local_rank=2) == torch.device("cuda:1")
    assert usable("cpu", local_rank=2) == torch.device("cpu")
    assert touched == ["cuda:2", "cuda:1", "cpu"]
