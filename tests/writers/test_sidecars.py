"""Sidecars: one text file per photo, and what is never replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from PIL import Image

from captioner.errors import CaptionerError
from captioner.writers.sidecars import SidecarWriter, has_sidecar
from tests.overlay.handmade_captions import caption


def test_a_sidecar_has_one_line_per_caption_and_replaces_an_older_one(tmp_path: Path):
    (tmp_path / "dog.txt").write_text("older\n")
    SidecarWriter().write(str(tmp_path / "dog.jpg"), caption("a dog", alternatives=("a cat",)))
    assert (tmp_path / "dog.txt").read_text() == "a dog\na cat\n"
    assert [path.name for path in tmp_path.iterdir()] == ["dog.txt"]


def test_two_photos_that_share_a_sidecar_are_an_error(tmp_path: Path):
    writer = SidecarWriter()
    writer.write(str(tmp_path / "dog.jpg"), caption("a dog"))
    with pytest.raises(CaptionerError, match=r"already belongs to .*dog\.jpg; rename one"):
        writer.write(str(tmp_path / "dog.png"), caption("a cat"))
    assert (tmp_path / "dog.txt").read_text() == "a dog\n"


def test_a_picture_is_never_replaced(tmp_path: Path):
    photo = tmp_path / "dog.txt"
    Image.new("RGB", (4, 4)).save(photo, "PNG")
    before = photo.read_bytes()
    with pytest.raises(CaptionerError, match="is a picture and is not replaced"):
        SidecarWriter().write(str(photo), caption("a dog"))
    assert photo.read_bytes() == before
    assert not has_sidecar(str(photo))


def test_a_photo_has_a_sidecar_once_it_is_written(tmp_path: Path):
    assert not has_sidecar(str(tmp_path / "dog.jpg"))
    SidecarWriter().write(str(tmp_path / "dog.jpg"), caption("a dog"))
    assert has_sidecar(str(tmp_path / "dog.jpg"))


def test_a_failed_write_keeps_the_older_sidecar(tmp_path: Path, monkeypatch):
    (tmp_path / "dog.txt").write_text("older\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptionerError, match=r"dog\.txt: cannot be written \(No space left on device\)"):
        SidecarWriter().write(str(tmp_path / "dog.jpg"), caption("a dog"))
    assert [path.name for path in tmp_path.iterdir()] == ["dog.txt"]
    assert (tmp_path / "dog.txt").read_text() == "older\n"
