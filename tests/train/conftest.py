"""Fixtures for tests that train: one small data set for all of them, and one thread, which is faster for small work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.train import tiny_run


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of shapes: 16 training images and 2 validation images with four captions each. Caches go inside it."""
    return tiny_run.write_data(tmp_path_factory.mktemp("shapes") / "data")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
