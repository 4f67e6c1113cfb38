"""`captioner train` on the command line: what it takes, what it says, how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from captioner.cli.train import command
from captioner.errors import CaptionerError
from captioner.train import config_file as configs
from tests.train import tiny_run


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run.write_data(tmp_path_factory.mktemp("shapes") / "data", 12)


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_a_run_goes_where_it_is_told_and_keeps_the_resolved_config(data: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "tiny.yaml", data)
    done = call("--config", config, "--set", "training.epochs=1", "--set", "seed=8", "--run", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "done: best CIDEr" in done.stderr
    kept = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert kept["training"]["epochs"] == 1
    assert kept["seed"] == 8
    assert kept["training"]["label_smoothing"] == 0.0  # a default, spelt out
    changed = configs.load(config, ["training.epochs=1", "seed=8"])
    assert configs.load(tmp_path / "run" / "config.yaml") == changed


def test_a_run_is_named_by_its_config_unless_told(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = tiny_run.write_config(tmp_path / "tiny.yaml", data, training__epochs=1, name="here")
    assert call("--config", config).exit_code == 0
    assert (tmp_path / "runs" / "here" / "best" / "model.safetensors").is_file()


def test_resume_goes_on_to_the_new_end(data: Path, tmp_path: Path) -> None:
    config, run = tiny_run.write_config(tmp_path / "tiny.yaml", data, training__epochs=1), tmp_path / "run"
    assert call("--config", config, "--run", run).exit_code == 0
    done = call("--resume", run, "--set", "training.epochs=2")
    assert done.exit_code == 0, done.output
    assert [row["epoch"] for row in tiny_run.read_metrics(run)] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a folder of photos or --config FILE to start a run, or --resume RUN to resume one"),
        (["--config", "nowhere.yaml"], "--config: no such file: nowhere.yaml"),
        (["--config", "."], "--config: . cannot be read (Is a directory)"),
        (["--resume", "nowhere"], "--resume: nowhere has no checkpoint"),
    ],
)
def test_a_wrong_call_is_explained(arguments: list[str], said: str) -> None:
    error = call(*arguments).exception
    assert isinstance(error, CaptionerError)
    assert said in str(error)


def test_a_device_that_isn_t_there_is_told_before_the_run_folder_is_made(data: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "tiny.yaml", data)
    error = call("--config", config, "--run", tmp_path / "run", "--device", "nonsense").exception
    assert isinstance(error, CaptionerError) and "--device nonsense: torch can't use it here" in str(error)
    assert not (tmp_path / "run").exists()
