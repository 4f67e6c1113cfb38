"""A file arrives whole over a connection that fails in every usual way, against a real HTTP server."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from captioner.data.download import room, transfer
from captioner.data.download.http import DownloadError
from captioner.data.download.room import ArchiveRoom, check_room, peak_bytes
from captioner.data.download.transfer import fetch
from captioner.data.download.transfer_record import fetched_bytes, part_of, record_of
from captioner.files.atomic import writer_label
from tests.data.download.file_server import Server

CONTENT = random.Random(0).randbytes(1_000_003)
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "train.zip"


@pytest.fixture(autouse=True)
def file(server: Server) -> None:
    server.files["/zips/train.zip"] = CONTENT


def url(server: Server) -> str:
    return f"{server.url}/zips/train.zip"


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path != target)


def test_a_file_arrives_over_several_connections_and_leaves_nothing_else(server: Server, target: Path) -> None:
    fetch(url(server), target, size=len(CONTENT), md5=MD5, connections=4)
    assert target.read_bytes() == CONTENT
    assert leftovers(target) == []
    ranges = [wanted for _, wanted in server.requests[1:]]
    assert len(ranges) == 4 and len(set(ranges)) == 4
    before = len(server.requests)
    fetch(url(server), target, md5=MD5)
    assert len(server.requests) == before  # a file that is there is not asked for


def test_a_server_without_ranges_sends_it_at_once(server: Server, target: Path) -> None:
    server.ranges = False
    fetch(url(server), target, size=len(CONTENT), md5=MD5)
    assert target.read_bytes() == CONTENT


def test_cut_connections_are_continued_where_they_broke(server: Server, target: Path) -> None:
    server.block, server.cut_after, server.cuts = 10_000, 50_000, 6
    fetch(url(server), target, md5=MD5, connections=3)
    assert target.read_bytes() == CONTENT
    assert server.cuts == 0
    assert server.sent < len(CONTENT) + 2  # no byte came twice but the first


def test_a_server_without_ranges_that_cuts_is_read_again_from_the_beginning(server: Server, target: Path) -> None:
    server.ranges, server.block, server.cut_after, server.cuts = False, 10_000, 500_000, 3
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_a_server_that_always_cuts_is_given_up_and_the_next_attempt_continues(server: Server, target: Path) -> None:
    server.block, server.cut_after, server.cuts = 10_000, 10_000, 1_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "ATTEMPTS", 1)
        with pytest.raises(DownloadError, match=r"the connection broke after .* bytes; given up"):
            fetch(url(server), target, md5=MD5, connections=2)
    on_disk = fetched_bytes(target)
    assert on_disk > 0 and not target.exists()
    server.cut_after, server.sent = None, 0
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.sent == len(CONTENT) - on_disk + 1


def test_a_server_without_ranges_that_always_cuts_is_given_up(server: Server, target: Path) -> None:
    server.ranges, server.block, server.cut_after, server.cuts = False, 10_000, 500_000, 20
    with pytest.raises(DownloadError, match=r"the connection broke .*; given up after 5 attempts"):
        fetch(url(server), target, md5=MD5)
    assert not target.exists()


def test_a_slow_server_is_waited_for_and_a_silent_one_is_not(server: Server, target: Path) -> None:
    server.block, server.delay = 250_001, 0.2
    fetch(url(server), target, md5=MD5, connections=1)
    assert target.read_bytes() == CONTENT
    target.unlink()
    server.delay = 3.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "ATTEMPTS", 2)
        with pytest.raises(DownloadError, match="no answer for 1 seconds; given up after 2 attempts"):
            fetch(url(server), target, md5=MD5)


def test_passing_failures_of_the_server_are_tried_again(server: Server, target: Path) -> None:
    server.statuses["/zips/train.zip"] = [503, 429, 500]
    fetch(url(server), target, md5=MD5, connections=2)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "message"), [(404, "not there any more; give another"), (403, "answers 403")])
def test_a_dead_link_is_a_sentence_at_once(server: Server, target: Path, status: int, message: str) -> None:
    server.statuses["/zips/train.zip"] = [status] * 9
    with pytest.raises(DownloadError, match=message):
        fetch(url(server), target, md5=MD5)
    assert len(server.requests) == 1


def test_redirects_are_followed_with_the_range(server: Server, target: Path) -> None:
    server.redirects["/old.zip"] = f"{server.url}/zips/train.zip"
    fetch(f"{server.url}/old.zip", target, md5=MD5, connections=3)
    assert target.read_bytes() == CONTENT


def test_a_redirect_to_a_file_of_this_machine_is_refused(server: Server, target: Path) -> None:
    server.redirects["/old.zip"] = "file:///etc/passwd"
    with pytest.raises(DownloadError):
        fetch(f"{server.url}/old.zip", target)
    assert not target.exists()


def test_a_wrong_checksum_is_said_and_the_file_stays(server: Server, target: Path) -> None:
    wrong = "0" * 32
    with pytest.raises(DownloadError, match=f"its MD5 is {MD5}, the published one is {wrong}.*It is kept"):
        fetch(url(server), target, md5=wrong)
    assert part_of(target).read_bytes() == CONTENT and not target.exists()
    asked = len(server.requests)
    with pytest.raises(DownloadError, match="MD5"):
        fetch(url(server), target, md5=wrong)
    fetch(url(server), target, md5=wrong, ignore_checksum=True)
    assert target.read_bytes() == CONTENT and len(server.requests) == asked  # nothing was fetched twice


def test_a_file_of_another_size_is_refused_before_it_is_fetched(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match=r"has 1,000,003 bytes, the published one 5"):
        fetch(url(server), target, size=5, md5=MD5)
    assert len(server.requests) == 1 and server.sent <= 1


def stopped_halfway(server: Server, target: Path) -> None:
    """A transfer that lost its server after some ranges."""
    server.block, server.cut_after, server.cuts = 10_000, 100_000, 1_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "ATTEMPTS", 1)
        with pytest.raises(DownloadError):
            fetch(url(server), target, connections=2)
    server.cut_after = None
    assert fetched_bytes(target) > 0


@pytest.mark.parametrize("size", [len(CONTENT), 300_000, 2_000_000])
def test_a_file_that_changed_between_two_attempts_is_fetched_anew(
    server: Server, target: Path, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped_halfway(server, target)
    changed = server.files["/zips/train.zip"] = random.Random(1).randbytes(size)
    fetch(url(server), target, connections=2)
    assert target.read_bytes() == changed
    assert "the file has changed on the server; it is fetched again" in capfd.readouterr().err


def test_a_file_that_changes_while_it_is_fetched_is_fetched_anew(server: Server, target: Path) -> None:
    changed = random.Random(2).randbytes(len(CONTENT))
    server.on_request[3] = ("/zips/train.zip", changed)
    fetch(url(server), target, connections=1 + 3)
    assert target.read_bytes() == changed


def test_a_file_that_shrinks_while_it_is_fetched_answers_416_and_is_fetched_anew(server: Server, target: Path) -> None:
    server.validators = False  # so the server does not see that another version is wanted
    changed = random.Random(3).randbytes(1_000)
    server.on_request[3] = ("/zips/train.zip", changed)
    fetch(url(server), target, connections=3)
    assert target.read_bytes() == changed


def test_without_validator_and_checksum_nothing_is_continued(
    server: Server, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.validators = False
    stopped_halfway(server, target)
    changed = server.files["/zips/train.zip"] = random.Random(4).randbytes(len(CONTENT))
    fetch(url(server), target)
    assert target.read_bytes() == changed
    assert "does not say whether this is still the same file" in capfd.readouterr().err


def test_another_mirror_continues_what_the_checksum_will_prove(server: Server, target: Path) -> None:
    server.validators = False
    stopped_halfway(server, target)
    on_disk = fetched_bytes(target)
    server.files["/mirror/train.zip"], server.sent = CONTENT, 0
    fetch(f"{server.url}/mirror/train.zip", target, md5=MD5)
    assert target.read_bytes() == CONTENT and server.sent == len(CONTENT) - on_disk + 1


def test_a_damaged_record_starts_again(server: Server, target: Path) -> None:
    stopped_halfway(server, target)
    record_of(part_of(target)).write_text('{"url": 3')
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_an_empty_file_arrives(server: Server, target: Path) -> None:
    server.files["/zips/train.zip"] = b""
    fetch(url(server), target)
    assert target.read_bytes() == b""


def test_a_login_page_is_not_taken_for_the_file(server: Server, target: Path) -> None:
    server.content_type = "text/html"
    with pytest.raises(DownloadError, match="a web page, not the file"):
        fetch(url(server), target)


def test_a_login_page_in_the_middle_deletes_nothing(server: Server, target: Path) -> None:
    stopped_halfway(server, target)
    on_disk = fetched_bytes(target)
    server.pages = {len(server.requests) + 2}  # the first request asks whether it is the same file
    with pytest.raises(DownloadError, match=r"a web page, not the file.* are in .*: the same command continues there"):
        fetch(url(server), target, connections=1)
    assert fetched_bytes(target) >= on_disk
    on_disk, server.sent = fetched_bytes(target), 0
    fetch(url(server), target)
    assert target.read_bytes() == CONTENT and server.sent < len(CONTENT) - on_disk + 1_000


@pytest.mark.parametrize("validators", [True, False])
def test_a_proxy_that_drops_a_range_once_costs_one_more_request(
    server: Server, target: Path, validators: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    server.validators = validators
    server.dropped_ranges = {3}
    fetch(url(server), target, md5=MD5, connections=4)
    assert target.read_bytes() == CONTENT and len(server.requests) == 1 + 4 + 1
    assert "has changed" not in capfd.readouterr().err


def test_a_proxy_that_drops_every_range_is_given_up_and_what_was_fetched_stays(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_halfway(server, target)
    on_disk = fetched_bytes(target)
    server.dropped_ranges = set(range(len(server.requests) + 2, 1_000))
    with pytest.raises(DownloadError, match=r"sends something else than the part .*; given up after 5 attempts"):
        fetch(url(server), target, connections=1)
    assert fetched_bytes(target) == on_disk


def test_a_server_that_sends_no_parts_any_more_is_named_before_the_file_is_fetched_again(
    server: Server, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stopped_halfway(server, target)
    server.ranges = False
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert "sends no parts of the file; it is fetched again from its beginning" in capfd.readouterr().err


def test_a_first_answer_without_its_range_does_not_lose_what_was_fetched(server: Server, target: Path) -> None:
    stopped_halfway(server, target)
    server.requests.clear()
    server.dropped_ranges = {1}
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert [wanted for _, wanted in server.requests[:2]] == ["bytes=0-0"] * 2
    assert all(not wanted.startswith("bytes=0-") for _, wanted in server.requests[2:])


def test_a_file_that_is_there_is_compared_with_the_published_one(server: Server, target: Path) -> None:
    target.write_bytes(CONTENT[:-1])
    with pytest.raises(DownloadError, match=r"has 1,000,002 bytes, the published one 1,000,003.*It is kept; delete it"):
        fetch(url(server), target, size=len(CONTENT), md5=MD5)
    with pytest.raises(DownloadError, match=r"its MD5 is .*It is kept; delete it"):
        fetch(url(server), target, md5=MD5)
    fetch(url(server), target, size=len(CONTENT), md5=MD5, ignore_checksum=True)
    assert target.read_bytes() == CONTENT[:-1] and server.requests == []


def test_the_unfinished_record_of_a_killed_process_is_removed(server: Server, target: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    host = writer_label().rpartition("-")[0]
    target.with_name(f".train.zip.part.json.{host}-{ended.stdout.strip()}.part").write_text("{")
    fetch(url(server), target, md5=MD5)
    assert leftovers(target) == []


def test_a_killed_process_continues(server: Server, target: Path) -> None:
    """kill -9 in the middle, twice."""
    server.block, server.delay = 4_000, 0.02
    code = (
        "import sys; from pathlib import Path; from captioner.data.download import transfer;"
        "transfer.SAVE_EVERY = 0.05; transfer.fetch(sys.argv[1], Path(sys.argv[2]), connections=2)"
    )
    for _ in range(2):
        before = fetched_bytes(target)
        process = subprocess.Popen([sys.executable, "-c", code, url(server), str(target)])
        deadline = time.monotonic() + 60
        while fetched_bytes(target) < before + 60_000 and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    on_disk = fetched_bytes(target)
    assert len(CONTENT) > on_disk >= 120_000 and not target.exists()
    server.delay, server.sent = 0.0, 0
    time.sleep(0.1)  # blocks that were on their way to the killed process
    server.sent = 0
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.sent < len(CONTENT) - on_disk + 10_000


def test_two_processes_do_not_fetch_the_same_file(server: Server, target: Path) -> None:
    with transfer._locked(target), pytest.raises(DownloadError, match="another captioner is fetching this file"):
        fetch(url(server), target)


def test_a_dead_proxy_is_named_without_its_password(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    with pytest.raises(DownloadError) as raised:
        fetch("http://images.example.org/a.zip", target)
    assert "through the proxy 127.0.0.1:9" in str(raised.value) and "secret" not in str(raised.value)


def test_a_working_proxy_is_used(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["http://images.example.org/zips/train.zip"] = CONTENT
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    fetch("http://images.example.org/zips/train.zip", target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_a_proxy_that_asks_for_a_login_says_so(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.statuses["http://images.example.org/a.zip"] = [407]
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(DownloadError, match=r"the proxy 127\.0\.0\.1:\d+ asks for a login"):
        fetch("http://images.example.org/a.zip", target)


def test_a_host_that_does_not_exist_is_a_sentence(target: Path) -> None:
    with pytest.raises(DownloadError, match="the host is not found"):
        fetch("http://no-such-host.invalid/a.zip", target)


def test_a_disk_that_fills_up_keeps_what_was_fetched(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file system refuses more than 400,000 bytes of a file, as a full disk does."""
    import resource

    server.block = 10_000
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, limits[1]))
    try:
        with pytest.raises(DownloadError, match=r"What was fetched is kept"):
            fetch(url(server), target, md5=MD5, connections=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert 300_000 <= fetched_bytes(target) <= 400_000
    fetch(url(server), target, md5=MD5)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("workers_fail_too", [True, False])
def test_a_disk_too_full_for_the_record_keeps_what_was_fetched(
    server: Server, target: Path, workers_fail_too: bool
) -> None:
    stopped_halfway(server, target)
    on_disk = fetched_bytes(target)

    def full(*arguments: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", f"{target}.part.json")

    server.block, server.delay = 10_000, 0.02
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "write_atomically", full)
        if workers_fail_too:
            patch.setattr(transfer._Transfer, "_read_range", full)
        with pytest.raises(DownloadError, match=r"train\.zip\.part: No space left .*\. What was fetched is kept"):
            fetch(url(server), target, connections=2)
    assert fetched_bytes(target) == on_disk
    server.delay = 0.0
    fetch(url(server), target)
    assert target.read_bytes() == CONTENT


def test_the_error_of_the_transfer_is_told_although_its_record_cannot_be_saved(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "write_atomically", full)
    monkeypatch.setattr(transfer, "SAVE_EVERY", 1_000.0)
    server.pages = {2}
    with pytest.raises(DownloadError, match="a web page, not the file"):
        fetch(url(server), target, connections=1)


def test_a_disk_without_room_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 5_000_000_000

    monkeypatch.setattr("shutil.disk_usage", lambda path: Usage)
    with pytest.raises(DownloadError, match=r"needs 13.5 GB, but the disk has 5 GB free"):
        check_room(tmp_path / "data" / "coco", 13_500_000_000, "fetching train2014.zip")
    check_room(tmp_path, 4_000_000_000, "fetching")


def test_a_file_without_room_is_refused_after_the_first_byte_and_a_part_of_it_stays(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(target.parent)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=room.SPARE + 900_000))
    with pytest.raises(DownloadError, match=r"fetching train\.zip needs 1 MB, but the disk has"):
        fetch(url(server), target)
    assert server.sent <= 1 and not target.exists() and leftovers(target) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda path: usage)
        stopped_halfway(server, target)
    on_disk = fetched_bytes(target)
    fetch(url(server), target)  # the rest has room
    assert target.read_bytes() == CONTENT and on_disk > 100_003


TEN, FIVE = ArchiveRoom(10, 10, 10.0), ArchiveRoom(5, 5, 5.0)


@pytest.mark.parametrize(
    ("archives", "keep", "most"),
    [
        ([TEN, FIVE], False, 20),
        ([TEN, FIVE], True, 30),
        ([ArchiveRoom(10, 10, None), ArchiveRoom(5, 5, None)], False, 15),  # they stay packed
        ([ArchiveRoom(10, 1, 10.0), FIVE], False, 11),  # 9 are there, and become free after unpacking
        ([ArchiveRoom(10, 0, 4.0), FIVE], False, 4),  # fetched, and 6 are unpacked already
    ],
)
def test_the_room_for_archives_counts_one_at_a_time_unless_they_are_kept(
    archives: list[ArchiveRoom], keep: bool, most: int
) -> None:
    assert peak_bytes(archives, keep=keep) == most
