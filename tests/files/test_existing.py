"""The rule for files that exist: kept and named, replaced only when asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.files.existing import check_unoccupied, is_occupied


def test_an_existing_file_is_named_with_every_way_out(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("precious")
    with pytest.raises(UsageError) as refused:
        check_unoccupied(path, "--output", resume="continue it with --resume")
    assert str(refused.value) == (
        f"{path} exists and is kept: continue it with --resume, replace it with --overwrite or choose another --output"
    )
    with pytest.raises(UsageError, match="kept: replace it with --overwrite or choose another --report"):
        check_unoccupied(path, "--report")
    check_unoccupied(path, "--output", overwrite=True)
    check_unoccupied(path, "--output", resuming=True)


def test_nothing_is_lost_in_empty_files_empty_folders_and_devices(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "empty", tmp_path / "folder", tmp_path / "missing", Path(os.devnull)):
        assert not is_occupied(path)
        check_unoccupied(path, "--output")
    (tmp_path / "folder" / "file").write_text("")
    assert is_occupied(tmp_path / "folder")
