"""Parquet: what pyarrow and a plain reader get back, resuming, and files that are something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from captioner.errors import UsageError
from captioner.writers.parquet_writer import ParquetWriter
from captioner.writers.sidecars import SidecarWriter
from tests.overlay.handmade_captions import caption


def write(path: Path, names: list[str], *, resume: bool = False) -> ParquetWriter:
    writer = ParquetWriter(path, resume=resume)
    for name in names:
        made = replace(caption("a dog runs", alternatives=("a cat",)), confidence=0.5)
        writer.write(name, made)
    writer.close()
    return writer


def test_a_row_has_the_caption_its_scores_its_words_and_their_probabilities(tmp_path: Path):
    write(tmp_path / "out.parquet", ["a.jpg"])
    first, second = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert (first["image"], first["rank"], first["caption"]) == ("a.jpg", 1, "a dog runs")
    assert (first["sentence"], first["confidence"], first["score"]) == ("A dog runs.", 0.5, -0.75)
    assert first["words"] == ["a", "dog", "runs"]
    assert first["probabilities"] == pytest.approx([0.9, 0.85, 0.8])
    assert first["gates"] == pytest.approx([0.3, 0.35, 0.4])
    assert (second["rank"], second["caption"], second["confidence"]) == (2, "a cat", None)
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_a_resumed_file_keeps_its_rows_and_knows_its_images(tmp_path: Path):
    write(tmp_path / "out.parquet", ["a.jpg"])
    assert write(tmp_path / "out.parquet", ["b.jpg"], resume=True).finished == {"a.jpg"}
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.column("image").to_pylist() == ["a.jpg", "a.jpg", "b.jpg", "b.jpg"]


def test_names_that_are_not_utf8_are_escaped_as_in_json_and_known_again(tmp_path: Path):
    names = ["caf\udce9.jpg", r"caf\udce9.jpg", r"a\b\u005cudce9", "\\\udce9", r"C:\users\u2028"]
    write(tmp_path / "out.parquet", names)
    stored = pyarrow.parquet.read_table(tmp_path / "out.parquet").column("image").to_pylist()[::2]
    assert stored[0] == r"caf\udce9.jpg"
    assert stored[-1] == r"C:\users\u2028"
    assert len(set(stored)) == len(names)
    assert write(tmp_path / "out.parquet", [], resume=True).finished == set(names)


def test_a_sidecar_in_the_same_folder_does_not_cost_the_table(tmp_path: Path):
    """The first sidecar of a folder removes the unfinished files of killed writers there."""
    writer = ParquetWriter(tmp_path / "out.parquet")
    writer.write("a.jpg", caption("a dog runs"))
    SidecarWriter().write(str(tmp_path / "a.jpg"), ["A dog runs."])
    writer.close()
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").num_rows == 1


def test_a_table_that_cannot_be_completed_leaves_the_old_one_and_no_unfinished_file(tmp_path: Path, monkeypatch):
    write(tmp_path / "out.parquet", ["a.jpg"])
    before = (tmp_path / "out.parquet").read_bytes()
    writer = ParquetWriter(tmp_path / "out.parquet")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "_flush", full)
    with pytest.raises(OSError, match="No space left"):
        writer.close()
    assert (tmp_path / "out.parquet").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_another_file_is_not_resumed(tmp_path: Path):
    (tmp_path / "text").write_text("no table")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "other")
    for name in ("text", "other"):
        with pytest.raises(UsageError, match="cannot resume"):
            ParquetWriter(tmp_path / name, resume=True)
