"""Which shards a command line names, how lists are divided, and which shards are finished."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.scale.picture_tables import read_list
from captioner.scale.shards import Shard, find_shards, is_shard, largest_first, unfinished, with_sizes
from tests.scale.written_shards import write_tar


def named(shards: list[Shard]) -> list[tuple[str, str]]:
    return [(shard.kind, shard.name) for shard in shards]


def test_ranges_patterns_and_folders_name_shards_in_order(tmp_path):
    for name in ("a/00008.tar", "a/00009.tar", "a/00010.tar", "b/x.parquet", "b/notes.md", "b/.hidden.tar"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    ranged = find_shards([f"{tmp_path}/a/{{00008..00010}}.tar"])
    assert named(ranged) == [("tar", "00008"), ("tar", "00009"), ("tar", "00010")]
    assert ranged == find_shards([f"{tmp_path}/a/*.tar"]) == find_shards([f"{tmp_path}/a"])
    assert named(find_shards([f"{tmp_path}/b"])) == [("parquet", "x")]


def test_a_folder_with_metadata_has_the_folders_name(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "metadata.jsonl").write_text('{"file_name": "a.png"}\n')
    assert named(find_shards([str(tmp_path / "set")])) == [("metadata", "set-000000000")]


@pytest.mark.parametrize("count", [0, 1, 4, 5, 8, 9])
def test_a_list_is_divided_into_parts_that_have_every_line_once(count, tmp_path):
    path = tmp_path / "all.txt"
    lines = [f"photos/{'ü' * number}{number}.jpg" for number in range(count)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    parts = find_shards([str(path)], shard_size=4)
    assert len(parts) == max(1, -(-count // 4))
    assert [part.name for part in parts] == [f"all-{4 * number:09d}" for number in range(len(parts))]
    keys = []
    for part in parts:
        with path.open("rb") as file:
            file.seek(part.offset)
            keys += [sample.key for sample in read_list(file, "", part.lines)]
    assert keys == lines


def test_two_shards_with_one_output_are_refused(tmp_path):
    for folder in ("a", "b"):
        write_tar(tmp_path / folder / "0.tar", [])
    with pytest.raises(UsageError, match="same output"):
        find_shards([f"{tmp_path}/*/0.tar"])


def test_folders_without_shards_and_missing_files_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no shards here"):
        find_shards([str(tmp_path)])
    with pytest.raises(UsageError, match="no such file"):
        find_shards([str(tmp_path / "missing")])


def test_a_finished_shard_is_left_out_and_another_division_is_refused(tmp_path):
    path = tmp_path / "all.txt"
    path.write_text("a.jpg\n" * 10)
    output = tmp_path / "out"
    output.mkdir()
    shards = find_shards([str(path)], shard_size=4)
    (output / "all-000000004.parquet").write_bytes(b"")
    (output / ".all-000000008.parquet.host-1.part").write_bytes(b"")
    assert unfinished(shards, str(output), "parquet") == [shards[0], shards[2]]
    assert unfinished(shards, str(output), "webdataset") == shards
    with pytest.raises(UsageError, match="divided differently"):
        unfinished(find_shards([str(path)], shard_size=5), str(output), "parquet")


def test_large_shards_come_first(tmp_path):
    for name, size in (("a.tar", 10), ("b.tar", 30), ("c.tar", 20)):
        (tmp_path / name).write_bytes(bytes(size))
    shards = largest_first(with_sizes(find_shards([str(tmp_path)])))
    assert [(shard.name, shard.size) for shard in shards] == [("b", 30), ("c", 20), ("a", 10)]


def test_only_tar_and_parquet_files_are_shards_by_their_names():
    assert [name for name in ("a.TAR", "b.parquet", "c.txt", "d.jpg", "s3://x/e.tar", "tar") if is_shard(name)] == [
        "a.TAR",
        "b.parquet",
        "s3://x/e.tar",
    ]


def test_outputs_are_in_the_folder_or_at_the_address():
    shard = Shard("in/7.tar", "tar", "7")
    assert Path(shard.output("out/", "parquet")) == Path("out/7.parquet")
    assert shard.output("s3://bucket/out/", "webdataset") == "s3://bucket/out/7.tar"


@pytest.mark.parametrize("argument", [".", "./", "metadata.jsonl", "../set", "./../set/metadata.jsonl"])
def test_the_shard_of_a_metadata_file_has_the_name_of_its_folder(argument, tmp_path, monkeypatch):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "metadata.jsonl").write_text('{"file_name": "a.png"}\n')
    monkeypatch.chdir(tmp_path / "set")
    assert [shard.name for shard in find_shards([argument])] == ["set-000000000"]
