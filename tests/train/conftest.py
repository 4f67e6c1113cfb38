"""What the tests of training share: one drawn set, and one thread, so that small work is quick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.train import making


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drawn set: 16 images to train on, 2 to validate, four captions each. Caches fill up inside."""
    return making.draw(tmp_path_factory.mktemp("shapes") / "data")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
