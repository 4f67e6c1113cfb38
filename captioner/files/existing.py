"""The one rule for files that exist before a command writes.

An existing file is kept and named. `--overwrite` replaces it, and `--resume` continues it. A file that its owner made
read-only is never replaced. Every command asks here before it does any work, so a refusal costs no time.
"""

from __future__ import annotations

import errno
import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from captioner.errors import UsageError

# What happens to a text file that exists: it is kept, replaced, or gets the new lines after or before its own.
Existing = Literal["keep", "overwrite", "append", "prepend"]
EXISTING: tuple[Existing, ...] = get_args(Existing)


def is_occupied(path: Path) -> bool:
    """Whether something would be lost: a file with content, or a folder with files. Pipes and devices hold nothing."""
    try:
        if path.is_dir():
            return any(path.iterdir())
        return path.is_file() and path.stat().st_size > 0
    except OSError:  # a name that is too long, or a folder that cannot be read: writing reports it
        return False


def check_unoccupied(
    path: Path | None, setting: str, *, overwrite: bool = False, resume: str = "", resuming: bool = False
) -> None:
    """Refuse an output that exists, unless it is to be replaced or continued.

    `setting` is the option that named it. `resume` says how the command continues it, where it can.
    """
    if path is None or resuming or overwrite or not is_occupied(path):
        return
    ways = [resume, "replace it with --overwrite", f"choose another {setting}"]
    *first, last = filter(None, ways)
    raise UsageError(f"{path} exists and is kept: {', '.join(first)} or {last}")


def check_only_own_files(folder: Path, own: Sequence[str], kind: str) -> None:
    """Refuse to replace a folder that contains anything else than these files: names or patterns, relative to it."""
    for path in _files(folder):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not any(fnmatch.fnmatchcase(name, pattern) for pattern in own):
            raise UsageError(
                f"{folder} is not replaced: {name} is not a file of a {kind}; move it or choose another folder"
            )


def remove_own_files(folder: Path, own: Sequence[str]) -> None:
    """Delete these files, and the folder and the folders in it if they are then empty. Other files stay."""
    for path in _files(folder):
        if any(fnmatch.fnmatchcase(path.relative_to(folder).as_posix(), pattern) for pattern in own):
            path.unlink()
    for here, _, _ in os.walk(folder, topdown=False):
        if not any(Path(here).iterdir()):
            Path(here).rmdir()


def _files(folder: Path) -> list[Path]:
    """Everything in a folder and its folders that is not a folder itself. Links are not followed."""
    found = []
    for here, folders, files in os.walk(folder):
        found += [Path(here) / name for name in files]
        found += [Path(here) / name for name in folders if (Path(here) / name).is_symlink()]
    return sorted(found)


def check_not_read_only(path: Path) -> None:
    """Refuse a file without any permission to write, which root and a rename would otherwise ignore."""
    if path.is_file() and not path.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))


def check_writable(path: Path | None, setting: str) -> None:
    """Refuse an output that cannot be written, before any work is done. `setting` is the option that named it."""
    if path is None:
        return
    is_new = not path.exists()
    try:
        check_not_read_only(path)
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another {setting}") from None


def merged(path: Path, new: str, existing: Existing) -> str | None:
    """The new content of a text file of lines, or None to leave the file as it is.

    Lines that the file already has are not added a second time, so a repeated run changes nothing.
    """
    if existing == "overwrite" or not is_occupied(path):
        return new
    if existing == "keep":
        return None
    old = path.read_bytes().decode("utf-8", errors="surrogateescape")
    present = set(old.splitlines())
    added = "".join(line + "\n" for line in new.splitlines() if line not in present)
    if not added:
        return None
    ended = old if old.endswith("\n") else old + "\n"
    return ended + added if existing == "append" else added + ended
