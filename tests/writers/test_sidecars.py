"""Sidecars: one text file per photo, and what is never replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from PIL import Image

from captioner.errors import CaptionerError, UsageError
from captioner.writers.sidecars import SidecarWriter

FIVE = "One.\nTwo.\nThree.\nFour.\nFive.\n"  # the captions of a person


def test_a_sidecar_has_one_line_per_caption(tmp_path: Path):
    kept = SidecarWriter().write(str(tmp_path / "dog.jpg"), ["A dog.", "A cat."])
    assert kept is None
    assert (tmp_path / "dog.txt").read_text() == "A dog.\nA cat.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["dog.txt"]


@pytest.mark.parametrize(
    ("existing", "content"),
    [("keep", FIVE), ("overwrite", "A dog.\n"), ("append", f"{FIVE}A dog.\n"), ("prepend", f"A dog.\n{FIVE}")],
)
def test_an_existing_sidecar_is_kept_replaced_or_gets_a_line(tmp_path: Path, existing, content):
    sidecar = tmp_path / "dog.txt"
    sidecar.write_text(FIVE)
    for _ in range(2):  # a second run changes nothing
        kept = SidecarWriter(existing=existing).write(str(tmp_path / "dog.jpg"), ["A dog."])
        assert kept == (sidecar if existing == "keep" else None)
        assert sidecar.read_text() == content


def test_a_line_is_added_after_text_without_a_line_break_and_in_another_encoding(tmp_path: Path):
    (tmp_path / "dog.txt").write_bytes(b"caf\xe9")
    SidecarWriter(existing="append").write(str(tmp_path / "dog.jpg"), ["A dog."])
    assert (tmp_path / "dog.txt").read_bytes() == b"caf\xe9\nA dog.\n"


def test_the_extension_is_free(tmp_path: Path):
    SidecarWriter(extension="caption").write(str(tmp_path / "dog.jpg"), ["A dog."])
    assert (tmp_path / "dog.caption").read_text() == "A dog.\n"
    for wrong in ("", ".", "a/b"):
        with pytest.raises(UsageError, match="--sidecar-extension"):
            SidecarWriter(extension=wrong)


def test_a_read_only_sidecar_is_not_replaced(tmp_path: Path):
    (tmp_path / "dog.txt").write_text(FIVE)
    (tmp_path / "dog.txt").chmod(0o444)
    with pytest.raises(CaptionerError, match=r"dog\.txt: cannot be written \(the file is read-only\)"):
        SidecarWriter(existing="overwrite").write(str(tmp_path / "dog.jpg"), ["A dog."])
    assert (tmp_path / "dog.txt").read_text() == FIVE


def test_a_replaced_sidecar_keeps_its_permissions(tmp_path: Path):
    (tmp_path / "dog.txt").write_text(FIVE)
    (tmp_path / "dog.txt").chmod(0o640)
    SidecarWriter(existing="append").write(str(tmp_path / "dog.jpg"), ["A dog."])
    assert (tmp_path / "dog.txt").stat().st_mode & 0o777 == 0o640


def test_two_photos_that_share_a_sidecar_are_an_error(tmp_path: Path):
    writer = SidecarWriter()
    writer.write(str(tmp_path / "dog.jpg"), ["A dog."])
    with pytest.raises(CaptionerError, match=r"already belongs to .*dog\.jpg; rename one"):
        writer.write(str(tmp_path / "dog.png"), ["A cat."])
    assert (tmp_path / "dog.txt").read_text() == "A dog.\n"


def test_a_picture_is_never_replaced(tmp_path: Path):
    photo = tmp_path / "dog.txt"
    Image.new("RGB", (4, 4)).save(photo, "PNG")
    before = photo.read_bytes()
    with pytest.raises(CaptionerError, match="is a picture and is not replaced"):
        SidecarWriter().write(str(photo), ["A dog."])
    assert photo.read_bytes() == before
    assert not SidecarWriter().has(str(photo))


def test_a_photo_has_a_sidecar_once_it_is_written(tmp_path: Path):
    assert not SidecarWriter().has(str(tmp_path / "dog.jpg"))
    SidecarWriter().write(str(tmp_path / "dog.jpg"), ["A dog."])
    assert SidecarWriter().has(str(tmp_path / "dog.jpg"))


def test_a_failed_write_keeps_the_older_sidecar(tmp_path: Path, monkeypatch):
    (tmp_path / "dog.txt").write_text("older\n")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CaptionerError, match=r"dog\.txt: cannot be written \(No space left on device\)"):
        SidecarWriter(existing="overwrite").write(str(tmp_path / "dog.jpg"), ["A dog."])
    assert [path.name for path in tmp_path.iterdir()] == ["dog.txt"]
    assert (tmp_path / "dog.txt").read_text() == "older\n"
