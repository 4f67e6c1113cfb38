"""Tar shards are read member by member. Damage is found, and costs only what it covers."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from pathlib import Path
from typing import IO, cast

import pytest

from captioner.errors import CaptionerError
from captioner.scale import samples as samples_module
from captioner.scale.samples import DamagedShard, Sample, UnreadPicture
from captioner.scale.tar_shards import read_tar
from tests.scale.written_shards import NOISE, data_of, pictures, webdataset, write_tar


def read(data: bytes | Path, *, with_members: bool = False) -> tuple[list[Sample], str]:
    """The samples, and what is wrong with the shard."""
    file = io.BytesIO(data if isinstance(data, bytes) else data.read_bytes())
    samples: list[Sample] = []
    try:
        samples.extend(read_tar(file, "s.tar", with_members=with_members))  # extend keeps what came before an error
    except DamagedShard as error:
        return samples, str(error)
    return samples, ""


def refused(sample: Sample) -> None:
    assert isinstance(sample.picture, UnreadPicture)
    sample.picture.read()


class Stream(io.RawIOBase):
    """A pipe: it cannot seek, and returns at most 700 bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(min(700, size) if size >= 0 else 700)


def test_a_sample_is_the_picture_with_its_key_and_its_bytes(tmp_path):
    files = pictures(3)
    samples, problem = read(webdataset(tmp_path / "s.tar", files))
    assert [(sample.key, data_of(sample)) for sample in samples] == [
        (f"{number:06d}", data) for number, data in enumerate(files)
    ]
    assert problem == ""
    assert all(sample.members == () for sample in samples)


def test_with_members_every_file_of_a_sample_is_kept_also_without_a_picture(tmp_path):
    shard = write_tar(tmp_path / "s.tar", [("a.png", pictures(1)[0]), ("a.json", b"{}"), ("b.json", b"[]")])
    samples, _ = read(shard, with_members=True)
    assert [[member.name for member in sample.members] for sample in samples] == [["a.png", "a.json"], ["b.json"]]
    assert samples[1].picture is None


def test_a_shard_is_read_from_a_stream_that_cannot_seek(tmp_path):
    files = pictures(4)
    data = webdataset(tmp_path / "s.tar", files).read_bytes()
    samples = list(read_tar(cast("IO[bytes]", Stream(data)), "s.tar", with_members=False))
    assert [data_of(sample) for sample in samples] == files


def test_keys_keep_folders_and_unicode_and_two_pictures_of_a_sample_have_their_own(tmp_path):
    one, two = pictures(2)
    long = "x" * 150 + "ß"  # longer than the name field of a tar header
    members = [("café/☃ 1.png", one), (f"{long}.jpg", two), ("pair.left.png", one), ("pair.right.png", two)]
    samples, _ = read(write_tar(tmp_path / "s.tar", members))
    assert [sample.key for sample in samples] == ["café/☃ 1", long, "pair.left", "pair.right"]


def test_pictures_are_recognised_by_name_or_content_and_hidden_files_are_none(tmp_path):
    (one,) = pictures(1)
    members = [("a.bin", one), ("b.jpg", NOISE), ("c.txt", b"text"), ("._d.jpg", b"of the system")]
    samples, _ = read(write_tar(tmp_path / "s.tar", members))
    assert [sample.key for sample in samples] == ["a", "b"]


def test_folders_and_links_are_not_pictures(tmp_path):
    path = tmp_path / "s.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("folder.jpg", tarfile.DIRTYPE), ("link.jpg", tarfile.SYMTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    assert read(path) == ([], "")


@pytest.mark.parametrize("where", ["in the header", "in the data", "between two files", "before the end mark"])
def test_a_shard_that_is_cut_off_gives_what_came_before_and_says_so(where, tmp_path):
    files = pictures(3)
    shard = write_tar(tmp_path / "s.tar", [(f"{number}.png", data) for number, data in enumerate(files)])
    with tarfile.open(shard) as tar:
        last = tar.getmembers()[2]
    end = last.offset_data + -(-last.size // 512) * 512
    cut = {
        "in the header": last.offset + 100,
        "in the data": last.offset_data + 20,
        "between two files": last.offset,
        "before the end mark": end,
    }[where]
    samples, problem = read(shard.read_bytes()[:cut])
    assert "cut off" in problem or "damaged" in problem
    whole = {"in the header": 2, "in the data": 2, "between two files": 2, "before the end mark": 3}[where]
    assert [data_of(sample) for sample in samples[:whole]] == files[:whole]
    assert len(samples) == whole + (where == "in the data")
    if where == "in the data":
        with pytest.raises(CaptionerError, match="cut off inside this picture"):
            refused(samples[2])


def test_noise_between_two_files_is_damage_and_not_the_end(tmp_path):
    shard = webdataset(tmp_path / "s.tar", pictures(2)).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(shard)) as tar:
        second = tar.getmembers()[3].offset
    samples, problem = read(shard[:second] + os.urandom(4096))
    assert len(samples) == 1
    assert "damaged after byte" in problem


@pytest.mark.parametrize("data", [b"", NOISE, b"\x1f\x8b" + NOISE])
def test_what_is_no_tar_file_is_refused(data):
    with pytest.raises(CaptionerError, match="not a tar file"):
        read(data)


def test_an_archive_without_files_has_no_samples(tmp_path):
    assert read(write_tar(tmp_path / "s.tar", [])) == ([], "")


def test_a_file_that_is_too_large_is_a_row_with_an_error_and_is_never_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("captioner.scale.tar_shards.LARGEST", 1_000_000)
    large, (small,) = bytes(40_000_000), pictures(1)
    shard = write_tar(tmp_path / "s.tar", [("a.jpg", large), ("b.png", small)])
    tracemalloc.start()
    with shard.open("rb") as file:
        first, second = read_tar(file, "s.tar", with_members=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with pytest.raises(CaptionerError, match="40,000,000 bytes are more than the limit"):
        refused(first)
    assert data_of(second) == small
    assert peak < 8_000_000


def test_batches_end_at_a_number_of_pictures_or_of_bytes(monkeypatch):
    monkeypatch.setattr(samples_module, "BATCH_BYTES", 100)
    sizes = [10, 10, 10, 90, 20, 10]
    samples = [Sample(str(size), samples_module.picture_bytes("x", bytes(size))) for size in sizes]
    batches = [[sample.size for sample in batch] for batch in samples_module.batches(samples, 3)]
    assert batches == [[10, 10, 10], [90, 20], [10]]


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (["a.jpg", "a.png"], ["a.jpg", "a.png"]),
        (["a.jpg", "a.jpg"], ["a.jpg", "a.jpg"]),
        (["a.jpg", "a.left.jpg", "a.left.png"], ["a.jpg", "a.left.jpg", "a.left.png"]),
        (["a.jpg", "b.jpg", "a.jpg"], ["a", "b", "a"]),
    ],
)
def test_every_picture_of_a_sample_is_a_sample_and_only_files_of_equal_names_share_a_key(names, keys, tmp_path):
    files = pictures(len(names))
    samples, problem = read(write_tar(tmp_path / "s.tar", zip(names, files, strict=True)))
    assert [(sample.key, data_of(sample)) for sample in samples] == list(zip(keys, files, strict=True))
    assert problem == ""


def test_each_picture_of_a_sample_has_the_files_that_are_named_after_it(tmp_path):
    one, two = pictures(2)
    names = ["p.txt", "p.left.json", "p.left.png", "p.right.png", "p.right.json"]
    contents = [b"", b"{}", one, two, b"{}"]
    samples, _ = read(write_tar(tmp_path / "s.tar", zip(names, contents, strict=True)), with_members=True)
    assert [[member.name for member in sample.members] for sample in samples] == [names[:3], names[3:]]


@pytest.mark.parametrize("with_members", [False, True])
@pytest.mark.parametrize("name", ["video.{:05d}.png", "same.png"])
def test_a_shard_whose_names_have_the_same_first_part_is_not_held_in_memory(name, with_members, tmp_path):
    data = pictures(1)[0] + bytes(500_000)
    shard = write_tar(tmp_path / "s.tar", ((name.format(number), data) for number in range(400)))
    tracemalloc.start()
    keys = []
    with shard.open("rb") as file:
        for sample in read_tar(file, "s.tar", with_members=with_members):
            keys.append(sample.key)
            copied = sum(len(member.data) for member in sample.members)
            assert not with_members or copied == len(data)
            del sample
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert keys == [name.format(number).removesuffix("" if name == "same.png" else ".png") for number in range(400)]
    assert peak < 110_000_000  # of 200 MB


def test_a_file_stays_with_its_picture_where_a_large_sample_is_divided(tmp_path, monkeypatch):
    monkeypatch.setattr("captioner.scale.tar_shards.SAMPLE_FILES", 3)
    (data,) = pictures(1)
    names = [f"v.{number}.{ending}" for number in range(4) for ending in ("png", "json")]
    members = [(name, data if name.endswith("png") else b"{}") for name in names]
    samples, _ = read(write_tar(tmp_path / "s.tar", members), with_members=True)
    assert [sample.key for sample in samples] == ["v.0", "v.1", "v.2", "v.3"]
    assert [[member.name for member in sample.members] for sample in samples] == [
        [f"v.{number}.png", f"v.{number}.json"] for number in range(4)
    ]
