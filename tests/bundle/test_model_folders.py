"""Models are found by name on the search path, or by folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.bundle import model_folders
from captioner.bundle.model_folders import available_models, find_model, start_folder
from captioner.errors import UsageError
from tests.tiny_bundle import write_model


def test_models_are_found_by_name_and_by_path(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    assert find_model("toy") == model.folder
    assert find_model(model.folder) == model.folder
    monkeypatch.chdir(tmp_path)
    assert find_model("./toy").resolve() == model.folder
    assert ("toy", model.folder) in list(available_models())


def test_an_installed_captioner_finds_the_models_of_the_checkout_it_is_called_in(model, tmp_path, monkeypatch):
    monkeypatch.setattr(model_folders, "__file__", str(tmp_path / "site-packages" / "captioner" / "bundle.py"))
    checkout = tmp_path / "checkout"
    (checkout / "weights").mkdir(parents=True)
    model.folder.rename(checkout / "weights" / "toy")
    monkeypatch.chdir(checkout)
    assert find_model("toy").resolve() == checkout / "weights" / "toy"
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(checkout / "weights" / "toy" / "manifest.json"))  # no folder: no matter
    assert "toy" in dict(available_models())


def test_a_missing_or_unreadable_folder_hides_no_other_model(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_model("toy") == model.folder
    real = Path.iterdir

    def iterdir(path):
        if path == Path("weights"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert find_model("toy") == model.folder


def test_an_unknown_name_is_told_with_the_search_path_and_the_nearest_name(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    with pytest.raises(UsageError, match=r"unknown model 'toi'.*Did you mean 'toy'.*Searched: ") as raised:
        find_model("toi")
    assert str(tmp_path) in str(raised.value)


def test_an_empty_search_path_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(model_folders, "search_path", lambda: [tmp_path])
    with pytest.raises(UsageError, match="no model in any of"):
        find_model("default")
    with pytest.raises(UsageError, match="no such folder"):
        find_model("no/such/folder")


def test_a_published_model_that_is_not_installed_is_named_with_the_way_to_get_it(model, tmp_path, monkeypatch):
    monkeypatch.setattr(model_folders, "__file__", str(tmp_path / "site-packages" / "captioner" / "bundle" / "x.py"))
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        find_model("hard")
    assert "git clone --depth 1 https://github.com/captioner-project/captioner" in str(refused.value)
    assert "--model captioner/weights/hard" in str(refused.value)


def test_the_published_models_are_those_of_the_repository():
    weights = Path(__file__).parents[2] / "weights"
    assert set(model_folders.PUBLISHED) == {folder.name for folder in weights.iterdir()}


def test_a_folder_of_the_current_folder_does_not_replace_a_model_of_that_name(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    here = tmp_path / "work"
    write_model(here / "toy", seed=5)
    write_model(here / "mine", seed=5)
    monkeypatch.chdir(here)
    assert find_model("toy") == model.folder
    assert find_model("./toy").resolve() == here / "toy"
    assert find_model(Path("toy")).resolve() == here / "toy"
    with pytest.raises(UsageError, match=r"unknown model 'mine'; for the folder of that name here, give \./mine"):
        find_model("mine")


def test_training_starts_from_a_model_of_that_name_and_from_a_folder_by_its_path(model, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPTIONER_WEIGHTS", str(tmp_path))
    here = tmp_path / "work"
    write_model(here / "toy", seed=5)
    (here / "run").mkdir()
    monkeypatch.chdir(here)
    assert start_folder("toy") == start_folder(Path("toy")) == model.folder
    assert start_folder("./toy").resolve() == start_folder(here / "toy") == here / "toy"
    assert start_folder("./run").resolve() == here / "run"
    with pytest.raises(UsageError, match=r"unknown model 'run'; for the folder of that name here, give \./run"):
        start_folder("run")
    with pytest.raises(UsageError, match="no such folder: no/where"):
        start_folder("no/where")
