"""Photos, a small model, and `captioner caption` with it in this process."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner import Captioner
from tests.cli import command_line
from tests.tiny_bundle import SIDE, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "toy").folder


@pytest.fixture(scope="module")
def captioner(model):
    return Captioner.load(model)


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    """Five pictures, one of them in a subfolder, and two files that are not pictures."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    blocks = np.random.default_rng(0).integers(0, 256, (5, 2, 2, 3), np.uint8)
    names = ["img_10.png", "img_2.jpg", "img_7.bmp", "more/img_4.png", "IMG_3.PNG"]
    for name, block in zip(names, blocks, strict=True):
        pixels = block.repeat(SIDE // 2, axis=0).repeat(SIDE // 2, axis=1)
        Image.fromarray(pixels).save(folder / name, quality=95)
    (folder / "notes.md").write_text("no picture")
    (folder / ".hidden.png").write_bytes(b"of the system")
    return folder


@pytest.fixture
def run(model, monkeypatch):
    def run(*arguments: str, stdin: str = "", command: str = "caption") -> tuple[int, str, str]:
        with_model = ("--model", model) if command == "caption" and "--model" not in arguments else ()
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        done = command_line.run(command, *with_model, *arguments)
        return done.returncode, done.stdout, done.stderr

    return run
