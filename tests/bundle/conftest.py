"""A small bundle for the tests of this package."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.bundle.loading import Bundle
from tests.tiny_bundle import write_model


@pytest.fixture
def model(tmp_path: Path) -> Bundle:
    return write_model(tmp_path / "toy")
