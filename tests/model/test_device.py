"""A device that torch can't use here is told in a sentence."""

from __future__ import annotations

import pytest
import torch

from captioner.errors import UsageError
from captioner.model.device import usable


def test_the_cpu_is_usable_and_a_device_is_chosen_where_none_is_asked() -> None:
    assert usable("cpu") == torch.device("cpu")
    assert usable(None).type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["nonsense", "meta", "cuda:99"])
def test_others_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UsageError, match=rf"--device {name}: torch can't use it here \(.+\)$"):
        usable(name)
