"""A file is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from captioner.files.atomic import open_atomically, sweep, write_atomically


def test_bytes_and_text_replace_the_old_content(tmp_path: Path) -> None:
    file = tmp_path / "a"
    write_atomically(file, b"\x00\xff")
    assert file.read_bytes() == b"\x00\xff"
    write_atomically(file, "größer")
    assert file.read_text(encoding="utf-8") == "größer"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_old_file_stands_until_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the moment of syncing, when all is written under the temporary name, the old file still stands."""
    file = tmp_path / "a"
    file.write_text("old")
    seen = []
    monkeypatch.setattr("captioner.files.atomic.os.fsync", lambda number: seen.append(file.read_text()))
    write_atomically(file, "new")
    assert seen[0] == "old"
    assert file.read_text() == "new"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_nothing_behind(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("old")

    def fail(number: int) -> None:
        raise error

    monkeypatch.setattr("captioner.files.atomic.os.fsync", fail)
    with pytest.raises(type(error)):
        write_atomically(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_sweep_removes_unfinished_files_and_nothing_else(tmp_path: Path) -> None:
    for name in (".last.safetensors.123.part", "last.safetensors", "notes.part", ".hidden"):
        (tmp_path / name).write_text("x")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "last.safetensors", "notes.part"]


def test_sweep_keeps_what_this_process_is_writing_and_removes_what_a_killed_one_of_its_number_left(tmp_path: Path):
    left = tmp_path / f".old.{os.getpid()}.part"
    left.write_text("x")
    with open_atomically(tmp_path / "a") as file:
        file.write(b"new")
        sweep(tmp_path)
        assert not left.exists()
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_file_written_in_pieces_appears_when_the_block_ends(tmp_path: Path) -> None:
    with open_atomically(tmp_path / "a") as file:
        file.write(b"one ")
        assert not (tmp_path / "a").exists()
        file.write(b"two")
    assert (tmp_path / "a").read_bytes() == b"one two"


def test_an_exception_in_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(ValueError), open_atomically(tmp_path / "a") as file:
        file.write(b"new")
        raise ValueError
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError) as raised:
        write_atomically(tmp_path / "missing" / "a", "new")
    assert raised.value.filename == str(tmp_path / "missing" / "a")


def test_only_this_module_renames_temporary_files() -> None:
    """Every other module writes through it. Downloads keep a part on purpose, and notebooks show a temporary page."""
    package = Path(__file__).parents[2] / "captioner"
    ways = ("NamedTemporaryFile", "mkstemp", "os.replace", '.part"')
    others = [
        path for path in package.rglob("*.py") if path.name not in ("atomic.py", "transfer_record.py", "notebook.py")
    ]
    assert [path.name for path in others if any(way in path.read_text() for way in ways)] == []
