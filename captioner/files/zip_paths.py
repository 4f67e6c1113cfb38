"""Files inside zip archives, named by ordinary paths: images/train2014.zip/train2014/photo.jpg.

An archive on a path counts as a folder. So a data set can stay packed: its members are read where they are.
"""

from __future__ import annotations

import fnmatch
import io
import os
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO

from captioner.errors import CaptionerError

SUFFIX = ".zip"
MEMBER_LIMIT = 1 << 30  # bytes of one unpacked member; more is an archive that would fill the memory


def is_archive(path: Path) -> bool:
    """Whether a path is that of a zip file."""
    return path.suffix.lower() == SUFFIX and path.is_file()


def is_file(path: Path) -> bool:
    """As `Path.is_file`, also for members of archives."""
    archive, member = _divide(path)
    if archive is None:
        return path.is_file()
    folder, _, name = member.rpartition("/")
    return name in folders_of(archive).get(folder, ())


def is_folder(path: Path) -> bool:
    """As `Path.is_dir`; an archive is a folder too."""
    archive, member = _divide(path)
    return path.is_dir() if archive is None else member in folders_of(archive)


def size_of(path: Path) -> int:
    """Bytes of a file or of an unpacked member; FileNotFoundError where there is none."""
    archive, member = _divide(path)
    if archive is None:
        return os.stat(path).st_size  # noqa: PTH116 (faster, for a hundred thousand files)
    try:
        return _open(archive).getinfo(member).file_size
    except KeyError:
        raise FileNotFoundError(path) from None


def open_binary(path: Path) -> IO[bytes]:
    """A file opened for reading; a member of an archive is unpacked into memory."""
    archive, member = _divide(path)
    if archive is None:
        return path.open("rb")
    if size_of(path) > MEMBER_LIMIT:
        raise CaptionerError(f"{path}: unpacked, it has more than {MEMBER_LIMIT:,} bytes; unpack the archive first")
    try:
        return io.BytesIO(_open(archive).read(member))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # damaged, unknown method, encrypted
        raise CaptionerError(f"{path}: cannot be unpacked ({error})") from None


def glob(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder or archive whose path below it matches, in order."""
    archive, inner = _divide(folder)
    if archive is None:
        return [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    directory, _, name = f"{inner}/{pattern}".strip("/").rpartition("/")
    names = folders_of(archive).get(directory, ())
    return [archive / directory / each for each in sorted(names) if fnmatch.fnmatchcase(each, name)]


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every folder below a folder or archive with the names of its files, in order."""
    archive, inner = _divide(folder)
    if archive is None:
        for directory, folders, files in os.walk(folder):
            folders.sort()
            yield Path(directory), sorted(files)
        return
    for directory, names in sorted(folders_of(archive).items()):
        if not inner or directory == inner or directory.startswith(f"{inner}/"):
            yield archive / directory, sorted(names)


def folders_of(archive: Path) -> dict[str, frozenset[str]]:
    """The names of the files in each folder of an archive; its top folder is an empty string."""
    return _folders(*_identity(archive))


def _divide(path: Path) -> tuple[Path | None, str]:
    """The archive on a path and the rest of the path; (None, "") where there is no archive."""
    if SUFFIX not in str(path).lower():  # nearly every path
        return None, ""
    parts = path.parts
    for count in range(1, len(parts) + 1):
        if parts[count - 1].lower().endswith(SUFFIX) and Path(*parts[:count]).is_file():
            return Path(*parts[:count]), "/".join(parts[count:])
    return None, ""


def _identity(archive: Path) -> tuple[Path, int, int, int]:
    """What the cached archives are known by. Two processes must not share an open file and its position."""
    status = archive.stat()
    return archive, status.st_mtime_ns, status.st_size, os.getpid()


def _open(archive: Path) -> zipfile.ZipFile:
    return _opened(*_identity(archive))


@lru_cache(maxsize=8)
def _opened(archive: Path, *_: int) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(archive)
    except (zipfile.BadZipFile, OSError) as error:
        raise CaptionerError(f"{archive}: not a zip file that can be read ({error})") from None


@lru_cache(maxsize=8)
def _folders(archive: Path, *identity: int) -> dict[str, frozenset[str]]:
    folders: dict[str, set[str]] = {"": set()}
    for info in _opened(archive, *identity).infolist():
        folder, _, name = info.filename.rpartition("/")
        while folder not in folders:
            folders[folder] = set()
            folder = folder.rpartition("/")[0]
        if name:
            folders[info.filename.rpartition("/")[0]].add(name)
    return {folder: frozenset(names) for folder, names in folders.items()}
