"""One file over HTTP: in ranges over several connections, continued after any interruption, checked at the end.

While a file is fetched, its bytes are in NAME.part, and NAME.part.json lists how much of every range is on disk. So a
process that is killed loses at most the last second. The file takes its name when it is complete and its MD5 is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from captioner.data.cost import readable
from captioner.data.download.http import DownloadError, PassingError, RangeError, opened
from captioner.data.download.retrying import pause_after
from captioner.data.download.room import check_room
from captioner.data.download.transfer_record import TransferRecord, forget, load_record, part_of, record_of
from captioner.files.atomic import sweep, write_atomically
from captioner.progress import ProgressBar
from captioner.terminal import say

RANGE = 1 << 24  # bytes of a range, for large files
BLOCK = 1 << 16  # bytes per read
ATTEMPTS = 5  # in a row without progress, before a transfer is given up
SAVE_EVERY = 1.0  # seconds between two records of what is on disk
MEGABYTE = 1_000_000
_CHANGED = "the file has changed on the server"
_DAMAGED = ": it is damaged or another version"
_KEPT = "It is kept; delete it to fetch it again, or use it as it is with --ignore-checksum"
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)$")


def fetch(
    url: str,
    target: Path,
    *,
    size: int | None = None,
    md5: str | None = None,
    connections: int = 4,
    ignore_checksum: bool = False,
    verify_existing: bool = True,
) -> Path:
    """Fetch a file to `target`, or continue to. `size` and `md5` are the published ones.

    The size of a file that is there already is compared too, and with `verify_existing` its MD5.
    """
    if target.is_file():
        if not ignore_checksum:
            _check_existing(target, size, md5 if verify_existing else None)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep(target.parent)
    with _locked(target):
        if target.is_file():
            return target
        part = part_of(target)
        with ProgressBar(target.name, "MB") as progress:
            for _ in range(3):
                try:
                    _Transfer(url, part, None if ignore_checksum else size, md5, connections, progress).run()
                    break
                except _FileChanged as change:
                    progress.clear()
                    say(f"{url}: {change}; it is fetched again from its beginning")
                    forget(part)
            else:
                raise DownloadError(f"{url}: the file changes on the server while it is fetched; try again later")
        if md5 is not None:
            _check_md5(part, target.name, md5, ignore_checksum)
        part.replace(target)
        record_of(part).unlink(missing_ok=True)
    return target


class _FileChanged(Exception):
    """The server has another version of the file than the one that was begun."""


class _Transfer:
    def __init__(
        self, url: str, part: Path, size: int | None, md5: str | None, connections: int, progress: ProgressBar
    ) -> None:
        self.url, self.part, self.connections, self.progress = url, part, connections, progress
        self.record = self._begin(size, md5)
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.error: BaseException | None = None
        self.waiting = [
            index for index in range(len(self.record.done)) if self.record.done[index] < self._length(index)
        ][::-1]

    def _begin(self, size: int | None, md5: str | None) -> TransferRecord:
        """Ask the server for the file's first byte, and continue what is on disk if it is the same file."""
        old = load_record(self.part)
        if old is not None and old.complete:
            return old
        on_disk = sum(old.done) if old is not None else 0
        new = self._probe_patiently(expect_ranges=old is not None and old.ranges and on_disk > 0)
        if size is not None and new.size is not None and new.size != size:
            raise DownloadError(
                f"{self.url}: the server's file has {new.size:,} bytes, the published one {size:,}: another file; "
                "give --ignore-checksum to fetch it all the same, or another address with --base-url"
            )
        check_room(self.part.parent, (new.size or 0) - on_disk, f"fetching {self.part.stem}")
        if old is not None and old.continues_as(new, md5):
            old.url, old.validator, old.ranges = new.url, new.validator, new.ranges
            return old
        if old is not None and on_disk and old.ranges and new.ranges:
            known = old.url == new.url and (old.size != new.size or bool(old.validator and new.validator))
            raise _FileChanged(_CHANGED if known else "the server does not say whether this is still the same file")
        if on_disk:
            self.progress.clear()
            say(f"{self.url}: the server sends no parts of the file; it is fetched again from its beginning")
        forget(self.part)  # the record too: it must not describe the bytes of another attempt
        new.step = max(1, min(RANGE, -(-(new.size or 1) // self.connections))) if new.ranges else new.size or 1
        new.done = [0] * (-(-new.size // new.step) if new.size else 1)
        self.part.write_bytes(b"")
        return new

    def _probe_patiently(self, *, expect_ranges: bool) -> TransferRecord:
        """Ask again after passing failures, and also after answers without the range if ranges are expected."""
        attempts = without_ranges = 0
        while True:
            try:
                new = self._probe()
            except PassingError as error:
                attempts += 1
                _pause_or_give_up(error, attempts, self.part)
                continue
            without_ranges += 1
            if new.ranges or not expect_ranges or without_ranges == ATTEMPTS:
                return new
            pause_after(PassingError("no range"), without_ranges, threading.Event())

    def _probe(self) -> TransferRecord:
        try:
            with opened(self.url, {"Range": "bytes=0-0"}) as response:
                self._refuse_web_page(response)
                etag, date = response.headers.get("ETag", ""), response.headers.get("Last-Modified", "")
                validator = etag if etag and not etag.startswith("W/") else date
                total = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
                if response.status == 206 and total:
                    return TransferRecord(self.url, int(total[3]), validator, True, 1)
                length = response.headers.get("Content-Length", "")
                return TransferRecord(self.url, int(length) if length.isdigit() else None, validator, False, 1)
        except RangeError:  # an empty file has no first byte
            return TransferRecord(self.url, None, "", False, 1)

    def _refuse_web_page(self, response: HTTPResponse) -> None:
        if response.headers.get_content_type() == "text/html" and self.part.suffixes[:1] != [".html"]:
            raise DownloadError(
                f"{self.url}: the answer is a web page, not the file; does the network ask for a login?"
                f"{_kept(self.part)}"
            )

    def run(self) -> None:
        """Fetch what is missing. The record is saved every second, and when this ends for any reason."""
        workers = [
            threading.Thread(target=self._work, daemon=True)
            for _ in range(min(self.connections if self.record.ranges else 1, len(self.waiting)))
        ]
        for worker in workers:
            worker.start()
        try:
            saved = time.monotonic()
            while any(worker.is_alive() for worker in workers):
                for worker in workers:
                    worker.join(0.05)
                self._show()
                if time.monotonic() - saved >= SAVE_EVERY:
                    self._save()
                    saved = time.monotonic()
        finally:
            self.stop.set()
            for worker in workers:
                worker.join(1.0)  # one that waits for the network ends with the process
            self._save()
        self._show()
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        try:
            with self.part.open("r+b") as file:
                while not self.stop.is_set():
                    with self.lock:
                        if not self.waiting:
                            return
                        index = self.waiting.pop()
                    self._fetch_range(index, file)
        except BaseException as error:  # handed to the main thread
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the transfer. Of several errors, the first is told."""
        with self.lock:
            self.error = self.error or _explained(error, self.part)
        self.stop.set()

    def _fetch_range(self, index: int, file: Any) -> None:
        attempts = 0
        while not self.stop.is_set():
            before = self.record.done[index]
            try:
                return self._read_range(index, file)
            except RangeError as error:
                if error.size not in (None, self.record.size):
                    raise _FileChanged(_CHANGED) from None
                failure = PassingError(str(error))
            except PassingError as error:
                failure = error
            gained = self.record.ranges and self.record.done[index] > before
            attempts = 1 if gained else attempts + 1
            if not self.record.ranges:
                self.record.done[index] = 0  # this server always begins at the beginning
            _pause_or_give_up(failure, attempts, self.part, self.stop)

    def _read_range(self, index: int, file: Any) -> None:
        start, end = self.record.bounds(index)
        position = start + self.record.done[index]
        headers = {}
        if self.record.ranges:
            headers["Range"] = f"bytes={position}-{(end or 0) - 1}"
            if self.record.validator:
                headers["If-Range"] = self.record.validator
        with opened(self.url, headers) as response:
            self._refuse_web_page(response)
            if self.record.ranges:
                self._check_range(response, position)
            file.seek(position)
            while end is None or position < end:
                block = response.read(BLOCK if end is None else min(BLOCK, end - position))
                if not block:
                    break
                file.write(block)
                file.flush()
                position += len(block)
                self.record.done[index] = position - start
                if self.stop.is_set():
                    return
        if end is None:
            self.record.size = position
        elif position < end:
            raise PassingError(f"{self.url}: the connection broke after {position:,} of {self.record.size:,} bytes")

    def _check_range(self, response: HTTPResponse, position: int) -> None:
        """Refuse an answer that is not the wanted part. Only the proof of another version counts as a change.

        A whole file is the answer to If-Range for a file that has changed, but also that of a proxy that drops Range.
        """
        told = _CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
        if response.status == 206 and told and (int(told[1]), int(told[3])) == (position, self.record.size):
            return
        length = told[3] if told else "" if response.status == 206 else response.headers.get("Content-Length", "")
        if self.record.is_another_version(response.headers, int(length) if length.isdigit() else None):
            raise _FileChanged(_CHANGED)
        raise PassingError(f"{self.url}: the server sends something else than the part that was asked for")

    def _length(self, index: int) -> float:
        start, end = self.record.bounds(index)
        return float("inf") if end is None else end - start

    def _save(self) -> None:
        """Record what is on disk: first the bytes, then the list of them. A failure ends the transfer."""
        record = json.dumps(asdict(self.record))
        try:
            with self.part.open("r+b") as file:
                os.fsync(file.fileno())
            write_atomically(record_of(self.part), record)
        except OSError as error:  # such as a full disk; the last record stays
            self._fail(error)

    def _show(self) -> None:
        size = self.record.size
        total = None if size is None else -(-size // MEGABYTE)
        if self.progress.plain_every is None and total is not None and total > 100:
            self.progress.plain_every = -(-total // 20)
        done = sum(self.record.done)
        self.progress.show(total if done == size and total is not None else done // MEGABYTE, total)


def _pause_or_give_up(error: PassingError, attempts: int, part: Path, stop: threading.Event | None = None) -> None:
    if attempts >= ATTEMPTS:
        raise DownloadError(f"{error}; given up after {attempts} attempts{_kept(part)}")
    pause_after(error, attempts, stop or threading.Event())


def _kept(part: Path) -> str:
    record = load_record(part)
    if record is None or not sum(record.done):
        return ""
    return f". {readable(sum(record.done))} are in {part}: the same command continues there"


def _explained(error: BaseException, part: Path) -> BaseException:
    if isinstance(error, OSError) and error.strerror:
        return DownloadError(
            f"{part}: {error.strerror}. What was fetched is kept: the same command continues there once there is room"
        )
    return error


def _check_existing(target: Path, size: int | None, md5: str | None) -> None:
    """Refuse a file that is not the published one."""
    found = target.stat().st_size
    if size is not None and found != size:
        raise DownloadError(f"{target}: has {found:,} bytes, the published one {size:,}{_DAMAGED}. {_KEPT}")
    if md5 is not None:
        _check_md5(target, target.name, md5, ignore=False)


def _check_md5(path: Path, name: str, md5: str, ignore: bool) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file, ProgressBar(f"checking {name}", "MB") as progress:
        total = -(-path.stat().st_size // MEGABYTE)
        done = 0
        while block := file.read(1 << 20):
            digest.update(block)
            done += len(block)
            progress.show(done // MEGABYTE, total)
    if digest.hexdigest() == md5:
        return
    found = f"{path}: its MD5 is {digest.hexdigest()}, the published one is {md5}{_DAMAGED}"
    if not ignore:
        raise DownloadError(f"{found}. {_KEPT}")
    say(f"{found}; used as it is")


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """No two processes fetch the same file. The system releases the lock when its process is killed."""
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DownloadError(f"{target}: another captioner is fetching this file") from None
    try:
        yield
    finally:
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)
