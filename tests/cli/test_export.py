"""`captioner export` on the command line, with and without 8-bit graphs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from captioner import Captioner
from captioner.bundle.layout import int8_graph
from captioner.bundle.loading import load_bundle, read_manifest
from captioner.cli import main
from captioner.errors import UsageError
from captioner.train import checkpoint
from captioner.train.run_folder import RunFolder
from captioner.train.start import start
from tests.train import tiny_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    data = tiny_run.write_data(folder / "shapes", 12)
    config = tiny_run.write_config(folder / "tiny.yaml", data, training__epochs=1)
    start(config, folder=folder / "run", device="cpu")
    return folder / "run"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_8_bit_graphs_are_added_and_run(run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    done = call("export", run, "--output", tmp_path / "made", "--int8")
    assert done.exit_code == 0, done.output
    assert "a word's log-probability differs by up to 0." in done.stdout
    assert not caplog.records  # onnxruntime does not ask for a preparation that was done
    graphs = {path.name for path in (tmp_path / "made").glob("*.onnx")}
    exact = {"encoder.onnx", "begin.onnx", "decoder.onnx"}
    assert graphs == exact | {int8_graph(name) for name in exact}
    picture = next((run.parent / "shapes").rglob("*.png"))
    caption = Captioner.load(tmp_path / "made", backend="int8")(picture, min_length=2)
    assert len(caption.words) >= 2


def test_a_bundle_gets_8_bit_graphs_measured_on_the_pictures_of_a_folder(run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--output", tmp_path / "made").exit_code == 0
    pictures = run.parent / "shapes"
    done = call("export", tmp_path / "made", "--int8", "--pictures", pictures, "--output", tmp_path / "quick")
    assert done.exit_code == 0, done.output
    before, after = read_manifest(tmp_path / "made"), read_manifest(tmp_path / "quick")
    assert after.static_int8 and not before.static_int8
    assert (after.scores, after.licence, after.decoding) == (before.scores, before.licence, before.decoding)
    for name in ("model.safetensors", "vocabulary.json", "README.md"):
        assert after.files[name] == before.files[name]
    picture = next(pictures.rglob("*.png"))
    done = call("caption", picture, "--model", tmp_path / "quick", "--fast", "--format", "csv")
    assert done.stdout.splitlines()[1].endswith(",int8")


def test_a_bundle_is_exported_only_to_add_8_bit_graphs(run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--output", tmp_path / "made").exit_code == 0
    again = ("export", tmp_path / "made", "--output", tmp_path / "again")
    pictures = ("--pictures", run.parent / "shapes")
    assert "give --int8 too" in str(call(*again, *pictures).exception)
    for arguments in ((), ("--int8",), (*pictures, "--int8", "--name", "other")):
        assert "with --int8 --pictures DIR a copy with 8-bit graphs" in str(call(*again, *arguments).exception)
    assert not (tmp_path / "again").exists()


def test_without_8_bit_graphs_the_int8_backend_is_refused(run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--output", tmp_path / "made").exit_code == 0
    assert not list((tmp_path / "made").glob("*.int8.onnx"))
    picture = next((run.parent / "shapes").rglob("*.png"))
    done = call("caption", picture, "--model", tmp_path / "made", "--backend", "int8")
    assert isinstance(done.exception, UsageError)
    assert "'tiny' has no 8-bit graphs; `captioner export --int8` adds them" in str(done.exception)


def test_8_bit_graphs_need_some_of_the_training_pictures(run: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run.parent, tmp_path / "moved")
    config = (moved / "run" / "config.yaml").read_text().replace(str(run.parent), str(moved))
    (moved / "run" / "config.yaml").write_text(config)
    first, *others = sorted((moved / "shapes").rglob("*.png"))
    first.unlink()
    assert call("export", moved / "run", "--output", tmp_path / "made", "--int8").exit_code == 0
    for each in others:
        each.unlink()
    done = call("export", moved / "run", "--output", tmp_path / "none", "--int8")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--int8 needs some of the pictures that the run was trained on: data.train")
    assert "are missing" in str(done.exception)
    assert not (tmp_path / "none").exists()
    shutil.rmtree(moved / "shapes")
    done = call("export", moved / "run", "--output", tmp_path / "none", "--int8")
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--int8 needs some of the pictures that the run was trained on: ")
    assert "data.train.0.captions" in str(done.exception)


def evaluation(run: Path, *options: str) -> str:
    captions = run.parent / "shapes" / "captions_val.json"
    done = call("evaluate", "--model", run, "--data", captions, "--split", "val", "--no-likelihood", "--json", *options)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_scores_of_an_evaluation_replace_those_of_validation(run: Path, tmp_path: Path) -> None:
    found = evaluation(run)
    (tmp_path / "found.json").write_text(found)
    done = call("export", run, "--output", tmp_path / "made", "--evaluation", tmp_path / "found.json")
    assert done.exit_code == 0, done.output
    manifest = load_bundle(tmp_path / "made").manifest
    assert manifest.scores == {name: round(score, 2) for name, score in json.loads(found)["scores"].items()}
    assert "METEOR" in manifest.scores  # validation has none
    assert manifest.scored_on.startswith("captions_val, split val, ")
    assert manifest.scored_on.endswith(" images, beam 1, length power 0.7")


def test_an_evaluation_with_other_search_options_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(evaluation(run, "--beam", "2"))
    told = json.loads(evaluation(run))
    told["search"]["hard_attention"] = "argmax"
    (tmp_path / "argmax.json").write_text(json.dumps(told))
    (tmp_path / "penalty.json").write_text(evaluation(run, "--repeat-penalty", "1.5"))
    (tmp_path / "no.json").write_text('{"scores": 3}')
    for name, why in (
        ("other.json", "beam 2 (bundle: 1)"),
        ("argmax.json", "hard_attention argmax (bundle: expected)"),
        ("penalty.json", "repeat_penalty 1.5 (bundle: 0.0)"),
        ("no.json", "is not an output of `captioner evaluate"),
    ):
        done = call("export", run, "--output", tmp_path / "made", "--evaluation", tmp_path / name)
        assert isinstance(done.exception, UsageError)
        assert why in str(done.exception)
        assert not (tmp_path / "made").exists()


def test_the_last_checkpoint_is_exported_with_averaged_weights(tmp_path: Path) -> None:
    # The run was never validated, so it has no best checkpoint.
    data = tiny_run.write_data(tmp_path / "shapes", 12)
    config = tiny_run.write_config(tmp_path / "tiny.yaml", data, training__epochs=1, training__ema=0.9)
    start(config, folder=tmp_path / "run", device="cpu")
    shutil.rmtree(tmp_path / "run" / "best")
    refused = call("export", tmp_path / "run", "--output", tmp_path / "made")
    assert "has not been validated yet" in str(refused.exception)
    assert call("export", tmp_path / "run", "--output", tmp_path / "made", "--last").exit_code == 0
    held, _ = checkpoint.read(RunFolder(tmp_path / "run").checkpoint)
    made, _ = checkpoint.read(tmp_path / "made" / "model.safetensors")
    name = "decoder.from_word.bias"  # is kept in full precision
    assert torch.equal(made[name], held[f"average.{name}"])
    assert not torch.equal(made[name], held[f"network.{name}"])
    manifest = load_bundle(tmp_path / "made").manifest
    assert manifest.scores == {} and manifest.scored_on == ""
    assert "Not scored." in (tmp_path / "made" / "README.md").read_text()
    RunFolder(tmp_path / "run").checkpoint.unlink()
    refused = call("export", tmp_path / "run", "--output", tmp_path / "again", "--last")
    assert "has saved no checkpoint yet" in str(refused.exception)


def test_an_existing_bundle_is_kept_and_named_without_overwrite(run: Path, tmp_path: Path) -> None:
    assert call("export", run, "--output", tmp_path / "made").exit_code == 0
    before = (tmp_path / "made" / "manifest.json").read_bytes()
    done = call("export", run, "--output", tmp_path / "made", "--name", "other")
    assert isinstance(done.exception, UsageError)
    assert f"{tmp_path / 'made'} exists and is kept: replace it with --overwrite" in str(done.exception)
    assert (tmp_path / "made" / "manifest.json").read_bytes() == before
    assert call("export", run, "--output", tmp_path / "made", "--name", "other", "--overwrite").exit_code == 0
    assert load_bundle(tmp_path / "made").manifest.name == "other"


def test_a_folder_for_the_browser_is_written_from_a_run_and_from_a_bundle(run: Path, tmp_path: Path) -> None:
    done = call("export", run, "--output", tmp_path / "made", "--web", tmp_path / "web")
    if isinstance(done.exception, UsageError) and "npm" in str(done.exception):
        pytest.skip(f"this needs onnxruntime-web: {done.exception}")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "web" / "captioner.json").read_text())["model"] == "tiny"
    assert call("export", tmp_path / "made", "--web", tmp_path / "again").exit_code == 0
    names = {path.relative_to(tmp_path / "web") for path in (tmp_path / "web").rglob("*")}
    assert {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*")} == names
    done = call("export", run, "--web", tmp_path / "web")
    assert "exists and is kept: replace it with --overwrite or choose another --web" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give --output DIR for a bundle"),
        (("--output", "made"), "not a folder of a training run"),
        (("--web", "web", "--int8"), "of a model, --web DIR can be written"),
        (("--web", "web", "--name", "other"), "of a model, --web DIR can be written"),
    ],
)
def test_of_a_model_only_a_folder_for_the_browser_is_written(arguments: tuple[str, ...], sentence: str) -> None:
    done = call("export", "default", *arguments)
    assert isinstance(done.exception, UsageError) and sentence in str(done.exception)
