"""Bundles that use the encoder of a bundle beside them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from captioner.bundle.layout import ENCODER, WEIGHTS
from captioner.bundle.loading import Bundle, load_bundle
from captioner.errors import CaptionerError, UsageError
from captioner.export.run_bundle import check_parity, export_bundle, export_run
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, search
from captioner.model.weights import ENCODER_PREFIX, load_network, read_tensors
from captioner.train.setup import prepare
from captioner.train.start import start
from tests.cli import command_line
from tests.train import tiny_run
from tests.train.short_runs import ALONE

HOW: dict[str, Any] = {"encoder__tail": "stage3", "training__epochs": 1, "training__ema": 0.9}


def train(data: Path, folder: Path, **changes: Any) -> Path:
    start(tiny_run.write_config(folder.with_suffix(".yaml"), data, **HOW, **changes), folder=folder, device="cpu")
    return folder


def export(run: Path, out: Path, **options: Any) -> Bundle:
    return export_run(run, out, licence="MIT", training_data="shapes", **options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, one that starts from it and keeps its encoder, and one that starts from it and trains it further."""
    folder = tmp_path_factory.mktemp("runs")
    data = tiny_run.write_data(folder / "data")
    first = train(data, folder / "first")
    train(data, folder / "kept", training__start_from=str(first), training__tune={"end_epoch": 0})
    train(data, folder / "moved", training__start_from=str(first))
    return folder


@pytest.fixture
def models(runs: Path, tmp_path: Path) -> Path:
    """The first run's bundle, and that of the run that kept its encoder."""
    export(runs / "first", tmp_path / "first")
    export(runs / "kept", tmp_path / "kept", encoder_of=tmp_path / "first")
    return tmp_path


def test_the_bundle_has_no_encoder_of_its_own(models: Path) -> None:
    bundle = load_bundle(models / "kept")
    assert bundle.manifest.encoder.file == "../first/encoder.onnx"
    assert not (models / "kept" / ENCODER).exists()
    names = set(read_tensors(models / "kept" / WEIGHTS)[0])
    assert names
    assert not any(name.startswith(ENCODER_PREFIX) for name in names)
    assert (models / "kept" / WEIGHTS).stat().st_size < (models / "first" / WEIGHTS).stat().st_size / 2


def test_it_captions_as_a_bundle_with_its_own_encoder(models: Path, runs: Path) -> None:
    whole, shared = export(runs / "kept", models / "whole"), load_bundle(models / "kept")
    assert check_parity(shared) < 1e-4
    pixels = np.random.default_rng(0).integers(0, 256, (4, tiny_run.SIZE, tiny_run.SIZE, 3), np.uint8)
    options = SearchOptions(beam=2, max_length=6)
    found = [[h[0] for h in search(b, b.encode(pixels), options)] for b in map(OnnxBackend, (whole, shared))]
    for ours, theirs in zip(*found, strict=True):
        assert ours.words == theirs.words
        assert np.array_equal(ours.alphas, theirs.alphas)
    ours, theirs = (load_network(bundle).state_dict() for bundle in (whole, shared))
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_training_starts_from_it(models: Path, runs: Path) -> None:
    config = tiny_run.config(runs / "data", **HOW, training__start_from=str(models / "kept"))
    began, bundled = (
        prepare(config, ALONE).network.state_dict(),
        load_network(load_bundle(models / "kept")).state_dict(),
    )
    assert all(torch.equal(began[name], bundled[name]) for name in bundled)


def test_a_copy_with_8_bit_graphs_has_its_own_encoder(models: Path, runs: Path) -> None:
    copy = export_bundle(models / "kept", models / "copy", pictures=runs / "data" / "images")
    shutil.rmtree(models / "first")
    assert load_bundle(models / "copy").manifest.encoder.file == ENCODER
    assert copy.path("encoder.int8.onnx").is_file()
    with pytest.raises(CaptionerError, match="its encoder is in the bundle 'first', which is not beside it"):
        load_bundle(models / "kept")


def test_the_command_says_the_size_of_its_own_folder(models: Path, runs: Path) -> None:
    beside = models / "kept" / ".." / "first"
    how = ["--licence", "MIT", "--encoder-of", beside]
    done = command_line.run("export", runs / "kept", "--output", models / "again", *how)
    assert done.returncode == 0, done.stderr
    size = sum(path.stat().st_size for path in (models / "again").iterdir() if path.name != "manifest.json")
    assert f"{size / 1e6:.1f} MB" in done.stdout
    done = command_line.run("export", runs / "kept", "--web", models / "web", *how)
    assert done.returncode == 2
    assert "--encoder-of is for a bundle: give --output DIR too" in done.stderr


def test_another_bundle_in_the_place_of_the_other_one_is_named(models: Path, runs: Path) -> None:
    export(runs / "moved", models / "first", overwrite=True)
    with pytest.raises(CaptionerError, match="is not the file that this bundle was made with; the bundle 'first' was"):
        load_bundle(models / "kept")


def test_another_encoder_is_refused(models: Path, runs: Path) -> None:
    with pytest.raises(UsageError, match=r"is not that of the run; .*training\.tune\.end_epoch=0"):
        export(runs / "moved", models / "moved", encoder_of=models / "first")
    assert not (models / "moved").exists()


def test_the_other_bundle_must_be_beside_the_new_one_and_whole(models: Path, runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be a folder beside"):
        export(runs / "kept", tmp_path / "far" / "kept", encoder_of=models / "first")
    with pytest.raises(UsageError, match="must be a folder beside"):
        export(runs / "kept", models / "first", encoder_of=models / "first", overwrite=True)
    with pytest.raises(UsageError, match="has no encoder of its own"):
        export(runs / "kept", models / "third", encoder_of=models / "kept")
    with pytest.raises(UsageError, match="give it another one with --name"):
        export(runs / "kept", models / "third", encoder_of=models / "first", name="first")
    strange = models / "the first"
    shutil.copytree(models / "first", strange)
    with pytest.raises(UsageError, match="can't be in a manifest"):
        export(runs / "kept", models / "third", encoder_of=strange)
    with pytest.raises(UsageError, match="leave out --int8"):
        export(runs / "kept", models / "third", encoder_of=models / "first", int8=True)
