"""Archives unpacked file by file, so that an interrupted unpacking continues."""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from captioner.data.download.room import check_room
from captioner.errors import CaptionerError
from captioner.files.atomic import open_atomically, sweep
from captioner.progress import ProgressBar

# Damaged; encrypted or of an unknown method (RuntimeError, with its subclass NotImplementedError).
_UNREADABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError)


def unpack(archive: Path, folder: Path, target: Callable[[PurePosixPath], Path | None], *, keep: bool) -> int:
    """Unpack the members that `target` gives a path for, relative to `folder`. Returns how many files are there.

    Each file takes its name when it is complete, and files of the right size are not written again. The archive is
    removed afterwards, unless it is to be kept.
    """
    try:
        with zipfile.ZipFile(archive) as source, ProgressBar(f"unpacking {archive.name}", "files") as progress:
            members = [(info, target(_safe(info.filename, archive))) for info in source.infolist() if not info.is_dir()]
            wanted = [(info, folder / path) for info, path in members if path is not None]
            missing = [
                (info, path) for info, path in wanted if not path.is_file() or path.stat().st_size != info.file_size
            ]
            for parent in {path.parent for _, path in missing}:
                sweep(parent)
            check_room(folder, sum(info.file_size for info, _ in missing), f"unpacking {archive.name}")
            for done, (info, path) in enumerate(missing, len(wanted) - len(missing)):
                progress.show(done, len(wanted))
                path.parent.mkdir(parents=True, exist_ok=True)
                with source.open(info) as packed, open_atomically(path, sync=False) as file:
                    shutil.copyfileobj(packed, file, 1 << 20)
    except (*_UNREADABLE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of the disk, not of a wrong offset in the file
            raise
        raise CaptionerError(
            f"{archive}: not a zip file that can be unpacked ({error}); delete it and try again"
        ) from None
    if not keep:
        if hasattr(os, "sync"):  # once, instead of once per file: the content is on the disk before the archive goes
            os.sync()
        archive.unlink()
    return len(wanted)


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise CaptionerError(f"{archive}: contains the unsafe path {name!r}; nothing of it was unpacked")
    return path
