"""The tiny model for shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner import Captioner
from captioner.scale.shard_captioning import ShardCaptioner, ShardSettings
from tests.tiny_bundle import write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "toy").folder


@pytest.fixture(scope="session")
def captioner(model: Path) -> Captioner:
    return Captioner.load(model)


@pytest.fixture(scope="session")
def shard_captioner(model: Path) -> ShardCaptioner:
    return ShardCaptioner(ShardSettings(model=str(model), batch=4))
