"""Writing files so that a reader never meets half of one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes | str) -> None:
    """All or nothing: a temporary name, synced, renamed. A failed write leaves what was there."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError):  # of the file that was asked for, not of its temporary name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    with contextlib.suppress(OSError):  # make the rename last through a power cut, where the system can
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep(folder: Path) -> None:
    """Remove what writers that were killed left behind; no other process may be writing here."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)
