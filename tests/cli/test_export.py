"""`captioner export` on the command line, with and without 8-bit graphs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from captioner import Captioner, bundle
from captioner.cli import main
from captioner.errors import UsageError
from captioner.train.run import start
from tests.train import making


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    data = making.draw(folder / "data", 12)
    config = making.write(folder / "tiny.yaml", data, training__epochs=1)
    start(config, folder=folder / "run", device="cpu")
    return folder / "run"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_graphs_in_8_bits_are_added_and_run(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = call("export", run, "--output", tmp_path / "made", "--int8")
    assert done.exit_code == 0, done.output
    assert "a word's log-probability differs by up to 0." in done.stdout
    assert not caplog.records  # nor does onnxruntime ask for a preparation that was made
    graphs = {path.name for path in (tmp_path / "made").glob("*.onnx")}
    exact = {"encoder.onnx", "begin.onnx", "decoder.onnx"}
    assert graphs == exact | {bundle.int8_graph(name) for name in exact}
    picture = next((run.parent / "data").rglob("*.png"))
    caption = Captioner.load(tmp_path / "made", backend="int8")(picture, min_length=2)
    assert len(caption.words) >= 2


def test_without_them_there_is_one_graph_of_each(run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--output", tmp_path / "made").exit_code == 0
    assert not list((tmp_path / "made").glob("*.int8.onnx"))
    picture = next((run.parent / "data").rglob("*.png"))
    done = call("caption", picture, "--model", tmp_path / "made", "--backend", "int8")
    assert isinstance(done.exception, UsageError)
    assert "'tiny' has no 8-bit graphs; `captioner export --int8` adds them" in str(done.exception)


def test_ranges_come_from_the_pictures_that_are_left(run: Path, tmp_path: Path) -> None:
    """And where none is, a sentence says what for they are needed."""
    moved = shutil.copytree(run.parent, tmp_path / "moved")
    config = (moved / "run" / "config.yaml").read_text().replace(str(run.parent), str(moved))
    (moved / "run" / "config.yaml").write_text(config)
    first, *others = sorted((moved / "data").rglob("*.png"))
    first.unlink()
    assert call("export", moved / "run", "--output", tmp_path / "made", "--int8").exit_code == 0
    for each in others:
        each.unlink()
    done = call("export", moved / "run", "--output", tmp_path / "none", "--int8")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--int8 needs some of the pictures that the run was trained on: data.train")
    assert "are missing" in str(done.exception)
    assert not (tmp_path / "none").exists()
    shutil.rmtree(moved / "data")
    done = call("export", moved / "run", "--output", tmp_path / "none", "--int8")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--int8 needs some of the pictures that the run was trained on: ")
    assert "data.train.0.captions" in str(done.exception)
