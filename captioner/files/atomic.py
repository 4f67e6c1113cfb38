"""Atomic writing: a reader sees the old file or the whole new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from zlib import crc32

from captioner.files.existing import check_not_read_only

UNFINISHED = ".*.part"  # names of the files that are being written
_HOST = socket.gethostname().partition(".")[0]  # process numbers repeat on the machines that share a disk
_being_written: set[Path] = set()  # by this process


@contextlib.contextmanager
def open_atomically(path: Path, *, sync: bool = True) -> Iterator[IO[bytes]]:
    """A file to write to. It takes its name when the block ends without an exception; otherwise it is removed.

    It gets the permissions of the file that it replaces. A read-only file is not replaced. Without `sync`, a power cut
    may lose the file: that is for many files that can be written again.
    """
    check_not_read_only(path)
    part = path.with_name(_unfinished_name(path.name))
    _being_written.add(part.absolute())
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if path.is_file():
            shutil.copymode(path, part)
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):  # name the file that was asked for, not the temporary one
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
        raise
    finally:
        _being_written.discard(part.absolute())
    if not sync:
        return
    with contextlib.suppress(OSError):  # some systems cannot sync a folder; the rename may then be lost in a power cut
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def open_stored_atomically(store: Any, path: str) -> Iterator[IO[bytes]]:
    """As `open_atomically`, for a file in `store`, a file system of fsspec.

    It is written to a temporary file on this machine first: many stores would keep the part of a failed upload.
    """
    folder, _, name = path.rpartition("/")
    part = f"{folder}/.{name}.{uuid.uuid4().hex}.part"
    with tempfile.TemporaryDirectory() as here:
        whole = Path(here) / "whole"
        with whole.open("wb") as file:
            yield file
        store.makedirs(folder, exist_ok=True)
        try:
            store.put_file(str(whole), part)
            store.mv(part, path)
        except BaseException:
            with contextlib.suppress(Exception):
                store.rm_file(part)
            raise


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a whole file at once. A failed write leaves the old file."""
    with open_atomically(path) as file:
        # A name that is not UTF-8 is shown as \\udcXX where a text file contains it.
        file.write(data.encode(errors="backslashreplace") if isinstance(data, str) else data)


def writer_label() -> str:
    """The machine and process that write a temporary file or folder, for its name."""
    return f"{_HOST}-{os.getpid()}"


def is_abandoned(label: str) -> bool:
    """Whether this process may remove what has this label: a process of this machine wrote it, and has ended.

    That of this process itself counts too, because a killed writer may have had its number, as in a container that is
    started again.
    """
    host, _, process = label.rpartition("-")
    if not process.isdecimal() or host not in ("", _HOST):  # labels of earlier versions had no host
        return False
    return int(process) == os.getpid() or not _is_running(int(process))


def _unfinished_name(name: str) -> str:
    """The name while the file is written. It is not longer than a file name may be, so long names can be written."""
    ending = f".{writer_label()}.part"
    room = 255 - 1 - len(ending) if len(os.fsencode(name)) > 200 else None
    short = name if room is None else os.fsdecode(os.fsencode(name)[: room - 9]) + f"-{crc32(os.fsencode(name)):08x}"
    return f".{short}{ending}"


def sweep(folder: Path) -> None:
    """Remove unfinished files of writers that were killed on this machine. All others stay."""
    for part in folder.glob(UNFINISHED):
        if is_abandoned(part.name.split(".")[-2]) and part.absolute() not in _being_written:
            part.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Whether a process of this number exists on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's
        return True
    return True
