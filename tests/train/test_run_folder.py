"""RunFolder: the file names of a run, in one module, and what is in a folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.train.run_folder import RunFolder, model_folder

PACKAGE = Path(__file__).parents[2] / "captioner"
NAME = re.compile(r'"(config\.yaml|last\.safetensors|metrics\.jsonl|timing\.jsonl|board)"')


def test_only_run_folder_spells_the_file_names_of_a_run() -> None:
    modules = [path.name for path in PACKAGE.rglob("*.py") if NAME.search(path.read_text(encoding="utf-8"))]
    assert modules == ["run_folder.py"]


def test_a_run_is_a_folder_with_a_config_and_without_a_manifest(tmp_path: Path) -> None:
    assert not RunFolder(tmp_path).is_run()
    (tmp_path / "config.yaml").touch()
    assert RunFolder(tmp_path).is_run()
    (tmp_path / "manifest.json").touch()
    assert not RunFolder(tmp_path).is_run()


def test_a_model_is_never_written_over_a_run_a_bundle_or_a_file(tmp_path: Path) -> None:
    RunFolder(tmp_path / "new").check_writable()
    for name, file in (("a training run", "last.safetensors"), ("a bundle", "manifest.json")):
        folder = tmp_path / file
        folder.mkdir()
        RunFolder(folder).check_writable()
        (folder / file).touch()
        with pytest.raises(UsageError, match=f"is {name}.*give another folder"):
            RunFolder(folder).check_writable()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file; give another folder"):
        RunFolder(tmp_path / "file").check_writable()


def test_the_confidence_of_an_exported_run_is_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    for name in ("run.lock", "bundle/manifest.json", "bundle/confidence.json"):
        (tmp_path / name).touch()
    RunFolder(tmp_path).check_replaceable()
    RunFolder(tmp_path).remove()
    assert not (tmp_path / "bundle").exists()


def test_the_best_folder_stands_for_its_run() -> None:
    assert model_folder(Path("runs/a/best")) == model_folder(Path("runs/a")) == Path("runs/a")


def test_it_needs_neither_torch_nor_pydantic() -> None:
    code = "import sys, captioner.train.run_folder; print({'torch', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
