"""Writing a folder as a whole: it appears complete or not at all, and an older one is replaced only then."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from captioner.files.atomic import is_abandoned, writer_label
from captioner.files.existing import remove_own_files

_LEFT = re.compile(r"\.([^.]+)\.(new|old)")  # the end of a temporary folder's name, with the label of its writer


@contextlib.contextmanager
def new_folder(
    folder: Path, marker: str, *, check: Callable[[Path], Sequence[str]], left_files: Sequence[str]
) -> Iterator[Path]:
    """A new folder to write to. It takes the name of `folder` when the block ends without an exception.

    `check` refuses an older folder of that name that may not be replaced, and returns its files, which are then
    removed. `marker` is the file that a complete folder has. `left_files` are names or patterns of what may be removed
    of an older folder whose writer was killed.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve would follow a link)
    _clean_up(folder, marker, left_files)
    own_files = check(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.parent / f".{folder.name}.{writer_label()}.new"
    old = folder.parent / f".{folder.name}.{writer_label()}.old"
    new.mkdir()
    try:
        yield new
        for path in new.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        if old.exists():
            remove_own_files(old, own_files)
    finally:
        if old.exists() and not folder.exists():
            old.rename(folder)
        shutil.rmtree(new, ignore_errors=True)


def _clean_up(folder: Path, marker: str, left_files: Sequence[str]) -> None:
    """Finish what a writer that was killed left: give an old folder its name back, remove unfinished and old ones."""
    for left in sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*")):
        match = _LEFT.fullmatch(left.name[len(folder.name) + 1 :])
        if match is None or not is_abandoned(match[1]):
            continue
        if match[2] == "new":
            shutil.rmtree(left, ignore_errors=True)
        elif not folder.exists() and (left / marker).is_file():
            left.rename(folder)
        else:
            remove_own_files(left, left_files)
