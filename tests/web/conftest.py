"""Web folders on a static server, and the scripts alone, for Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.remote.webdriver import WebDriver

from browser_session import run, static_server
from captioner.errors import CaptionerError
from captioner.web.onnxruntime_web import runtime_files
from captioner.web.web_folder import write_web_folder
from tests.overlay.browser import browser
from tests.tiny_bundle import write_model

__all__ = ["browser"]

ROOT = Path(__file__).parents[2]
BLANK = {"/blank.html": "<!DOCTYPE html><title>blank</title><input type=file multiple>"}


@pytest.fixture(scope="session")
def runtime() -> dict[str, Path]:
    """The files of onnxruntime-web, from the cache or from npm."""
    try:
        return runtime_files()
    except CaptionerError as error:
        if "npm" in str(error) and "hash" not in str(error):
            pytest.skip(f"these tests need onnxruntime-web: {error}")
        raise


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "toy").folder


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, model: Path, runtime: dict[str, Path]) -> Path:
    """A web folder with a tiny model."""
    folder = tmp_path_factory.mktemp("web") / "site"
    write_web_folder(model, folder)
    return folder


@pytest.fixture(scope="module")
def scripts(browser: WebDriver) -> Iterator[Any]:
    """Runs the body of an async function in a page beside the scripts of captioner/web."""
    with static_server(ROOT / "captioner" / "web", pages=BLANK) as address:
        browser.get(address + "blank.html")
        yield lambda script, *arguments: run(browser, script, *arguments, seconds=60)
        browser.get("about:blank")
