"""The command that installs what is missing works for this installation."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from captioner import installation
from captioner.installation import EXTRAS, how_to_install, install_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_every_package_of_an_extra_is_known_by_the_name_that_is_imported() -> None:
    homes = importlib.metadata.packages_distributions()
    for extra in ("train", "pdf", "heic"):
        declared = {canonicalize_name(Requirement(line).name) for line in PROJECT["optional-dependencies"][extra]}
        named = {package for package, its_extra in EXTRAS.items() if its_extra == extra}
        assert {canonicalize_name(home) for package in named for home in homes[package]} == declared


def test_an_installed_captioner_gets_its_extra_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: object())
    assert how_to_install("reportlab") == "pip install 'captioner[pdf]'"
    assert how_to_install("numpy") == "pip install 'captioner'"


def test_a_checkout_that_is_not_installed_is_named_by_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command("train") == f"pip install '{ROOT}[train]'"
    monkeypatch.setattr(installation, "__file__", str(tmp_path / "captioner" / "installation.py"))
    assert install_command("train").startswith("pip install 'captioner[train] @ git+https://")
