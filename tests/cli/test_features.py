"""`captioner features` on the command line: fills the cache of both splits, and training then encodes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from captioner.cli.features import command
from captioner.errors import UsageError
from captioner.train import features
from captioner.train.start import start
from tests.train import tiny_run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run.write_data(tmp_path_factory.mktemp("shapes") / "data", 12)


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize("weights", ["package", "none"])
def test_training_finds_what_the_command_made(
    weights: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_run.write_config(tmp_path / "tiny.yaml", data, training__epochs=1, encoder__weights=weights)
    done = call("--config", config, "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "train: complete, in " in done.stderr
    assert "val: complete, in " in done.stderr
    assert "images/s" in done.stderr
    again = call("--config", config, "--device", "cpu")
    assert "images/s" not in again.stderr  # nothing was left to do

    def encoded(*args: object) -> None:
        pytest.fail("an image was encoded again")

    monkeypatch.setattr(features, "_encode_into", encoded)
    start(config, folder=tmp_path / "run", device="cpu")


def test_an_empty_trunk_has_nothing_to_cache(data: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "tiny.yaml", data, encoder__tail="stem")
    error = call("--config", config).exception
    assert isinstance(error, UsageError)
    assert "encoder.tail='stem' leaves an empty trunk: there is nothing to cache" in str(error)


def test_a_config_is_needed() -> None:
    assert call().exit_code == 2
