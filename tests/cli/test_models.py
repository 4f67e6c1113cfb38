"""`captioner models`: the list of models for people and programs, with damaged models."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from captioner.bundle import model_folders
from captioner.bundle.loading import load_bundle
from captioner.cli import main
from tests.tiny_bundle import write_model


@pytest.fixture
def model_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(model_folders, "search_path", lambda: [tmp_path])
    write_model(
        tmp_path / "one", training_data="COCO train", licence="Apache-2.0", scores={"BLEU-4": 28.5}, scored_on="val"
    )
    write_model(tmp_path / "two", hard=True)
    (tmp_path / "not-a-model").mkdir()
    return tmp_path


def test_size_attention_training_data_and_scores_are_listed(model_folder):
    out = CliRunner().invoke(main, ["models"]).output
    assert "one\n  soft attention, means, grid 2x2, 0.0 MB\n" in out
    assert "trained on COCO train; licence Apache-2.0" in out
    assert "BLEU-4 28.5 (val)" in out
    assert "two\n  hard attention" in out
    assert "not measured" in out


def test_json_has_all_values(model_folder):
    found = json.loads(CliRunner().invoke(main, ["models", "--json"]).output)
    assert [entry["name"] for entry in found] == ["one", "two"]
    assert found[0]["bytes"] == load_bundle(model_folder / "one").size
    assert found[0]["scores"] == {"BLEU-4": 28.5}


def test_a_damaged_model_is_listed_with_the_reason(model_folder):
    (model_folder / "two" / "decoder.onnx").unlink()
    result = CliRunner().invoke(main, ["models"])
    assert result.exit_code == 0
    assert "cannot be used" in result.output and "decoder.onnx is missing" in result.output


def test_without_models_the_searched_folders_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(model_folders, "search_path", lambda: [tmp_path / "nowhere"])
    result = CliRunner().invoke(main, ["models"])
    assert "no models in" in result.output and "nowhere" in result.output


def test_published_models_that_are_not_installed_are_named_with_their_place(model_folder):
    result = CliRunner().invoke(main, ["models"])
    assert "not installed: default, flickr8k-hard, flickr8k-soft, hard. They are in the folder" in result.stderr
    assert "not installed" not in CliRunner().invoke(main, ["models", "--json"]).output
