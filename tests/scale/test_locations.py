"""Files by path or address. Stores are those of fsspec: memory, and a web server on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid

import fsspec
import pytest

from captioner.errors import CaptionerError, UsageError
from captioner.scale.locations import (
    StoreError,
    expanded,
    files_in,
    last_part,
    open_input,
    open_output,
    remove_outputs,
    remove_unfinished,
    store_errors,
)
from tests.scale.web_server import web_server


@pytest.fixture
def store() -> str:
    """A folder in memory."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def web(tmp_path):
    with web_server(tmp_path) as server:
        yield server.address


def test_an_output_in_a_store_appears_complete_and_alone(store):
    with open_output(f"{store}/out/a.parquet") as file:
        file.write(b"one ")
        assert files_in(f"{store}/out") == {}
        file.write(b"two")
    assert files_in(f"{store}/out") == {"a.parquet": 7}
    with open_input(f"{store}/out/a.parquet") as file:
        assert file.read() == b"one two"


def test_a_failed_output_in_a_store_leaves_nothing(store):
    with pytest.raises(ValueError), open_output(f"{store}/out/a.parquet") as file:
        file.write(b"one")
        raise ValueError
    assert files_in(f"{store}/out") == {}


def test_a_failed_upload_leaves_the_old_file_and_no_part(store, monkeypatch):
    with open_output(f"{store}/out/a") as file:
        file.write(b"old")

    def fail(self, *arguments, **options):
        raise OSError("the store is full")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "mv", fail)
    with pytest.raises(OSError, match="full"), open_output(f"{store}/out/a") as file:
        file.write(b"new")
    assert files_in(f"{store}/out") == {"a": 3}


def test_a_file_of_a_web_server_is_read(web, tmp_path):
    (tmp_path / "a.tar").write_bytes(b"x" * 300_000)
    with open_input(f"{web}/a.tar?token=1") as file:
        assert file.read(10) == b"x" * 10
    with pytest.raises((CaptionerError, FileNotFoundError)):
        open_input(f"{web}/missing.tar")


def test_ranges_and_patterns_are_expanded(store, tmp_path):
    for name in ("1.tar", "2.tar"):
        (tmp_path / name).touch()
        with open_output(f"{store}/{name}") as file:
            file.write(b"x")
    assert expanded("a/{08..11}.tar") == ["a/08.tar", "a/09.tar", "a/10.tar", "a/11.tar"]
    assert expanded(f"{tmp_path}/*.tar") == [f"{tmp_path}/1.tar", f"{tmp_path}/2.tar"]
    assert [last_part(name) for name in expanded(f"{store}/*.tar")] == ["1.tar", "2.tar"]
    assert expanded("https://host/a.tar?x=[1]") == ["https://host/a.tar?x=[1]"]
    with pytest.raises(UsageError, match="too many"):
        expanded("{0..99999999999}.tar")


@pytest.mark.parametrize("address", ["ftp2://x/a.tar", "file:///etc/passwd", "zip://a::memory://x", "reference://x"])
def test_other_kinds_of_addresses_are_refused(address):
    with pytest.raises(UsageError, match="not opened"):
        open_input(address)


def test_parts_of_finished_files_are_removed_and_others_stay(tmp_path):
    names = (".1.parquet.host-7.part", ".2.parquet.host-7.part", "1.parquet")
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(str(tmp_path), {"1.parquet"})
    assert sorted(path.name for path in tmp_path.iterdir()) == [".2.parquet.host-7.part", "1.parquet"]


def test_a_file_that_is_renamed_during_a_listing_hides_no_other(tmp_path, monkeypatch):
    for name in ("1.parquet", ".2.parquet.host-7.part", "3.parquet"):
        (tmp_path / name).write_bytes(b"data")
    listed = os.scandir

    @contextlib.contextmanager
    def scandir(folder):
        with listed(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        (tmp_path / ".2.parquet.host-7.part").rename(tmp_path / "2.parquet")
        yield found

    monkeypatch.setattr("captioner.scale.locations.os.scandir", scandir)
    assert files_in(str(tmp_path)) == {"1.parquet": 4, "3.parquet": 4}


def test_outputs_are_removed_unless_one_is_read_only(store, tmp_path):
    kept, other = tmp_path / "kept", tmp_path / "other"
    kept.touch(mode=0o444)
    other.touch()
    with pytest.raises(PermissionError, match="read-only"):
        remove_outputs([str(other), str(kept)])
    assert other.exists() and kept.exists()
    with open_output(f"{store}/out/a") as file:
        file.write(b"x")
    remove_outputs([str(other), f"{store}/out/a", f"{store}/out/missing"])
    assert not other.exists()
    assert files_in(f"{store}/out") == {}


def test_the_last_part_of_an_address_has_no_query():
    assert last_part("https://host/a/b.tar?sig=/x.parquet") == "b.tar"
    assert last_part("a/b/") == "b"


def test_a_listing_is_not_that_of_a_cache(store, monkeypatch):
    forgotten: list[str] = []
    kind = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(kind, "invalidate_cache", lambda self, path=None: forgotten.append(path))
    files_in(f"{store}/out")
    assert [path.rpartition("/")[2] for path in forgotten] == ["out"]


def test_a_store_that_fails_says_whether_it_was_read_or_written(store, monkeypatch):
    with open_output(f"{store}/a") as file:
        file.write(b"x")

    def fail(self, *arguments, **options):
        raise LookupError("the bucket is gone")

    kind = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(kind, "rm_file", fail)
    monkeypatch.setattr(kind, "_open", fail)
    reason = r"\(LookupError: the bucket is gone\)"
    with pytest.raises(StoreError, match=f"{store}/a: the store cannot be written to {reason}"):
        remove_outputs([f"{store}/a"])
    with pytest.raises(StoreError, match=f"{store}/a: the store cannot be read {reason}"):
        open_input(f"{store}/a")


def test_errors_of_this_machine_stay_what_they_are(tmp_path):
    with pytest.raises(LookupError), store_errors(str(tmp_path / "a")):
        raise LookupError


def test_a_package_that_a_store_needs_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r"^s3://bucket/a: Install s3fs to access S3: pip install s3fs$"):
        open_input("s3://bucket/a")
