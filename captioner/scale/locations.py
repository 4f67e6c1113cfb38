"""Files by path or by address: on a local disk, or in a store that fsspec opens (s3://, gs://, https://, …)."""

from __future__ import annotations

import errno
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import UNFINISHED, open_atomically, open_stored_atomically
from captioner.files.existing import check_not_read_only
from captioner.installation import EXTRAS, how_to_install, install_command

# fsspec knows more. Some of those read other files than the one that is named, or run templates, and names of pictures
# come from tables that others wrote.
PROTOCOLS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "hdfs", "http", "https", "memory")

_BUSY = (408, 425, 429)  # statuses of a web server that ask for another attempt
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class StoreError(CaptionerError):
    """A store that cannot be reached, read or written to now. Another time, it may work."""


def is_address(name: str) -> bool:
    """Whether a name is the address of a file in a store, and not a path."""
    return "://" in name


def open_input(name: str) -> IO[bytes]:
    """A file opened for reading. What is wrong with an address or its store is a CaptionerError."""
    if not is_address(name):
        return Path(name).open("rb")
    store, path = store_of(name)
    with store_errors(name):
        file: IO[bytes] = store.open(path, "rb")
        return file


@contextmanager
def open_output(name: str) -> Iterator[IO[bytes]]:
    """A file to write to, which appears complete or not at all."""
    if not is_address(name):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        with open_atomically(Path(name)) as file:
            yield file
        return
    store, path = store_of(name)
    with open_stored_atomically(store, path) as file:
        yield file


def files_in(folder: str) -> dict[str, int]:
    """The names of the files in a folder, with their bytes. One listing, because a store may hold very many."""
    if not is_address(folder):
        try:
            with os.scandir(folder) as entries:
                return dict(_sized(entries))
        except (FileNotFoundError, NotADirectoryError):
            return {}
    store, path = store_of(folder)
    try:
        store.invalidate_cache(path)  # other workers write there
        entries = store.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except Exception as error:
        raise _explained(folder, error) from error
    return {entry["name"].rpartition("/")[2]: entry.get("size") or 0 for entry in entries if entry["type"] == "file"}


def _sized(entries: Iterable[os.DirEntry[str]]) -> Iterator[tuple[str, int]]:
    """Files with their bytes. One that is renamed or deleted during the listing is left out."""
    for entry in entries:
        with suppress(FileNotFoundError):
            if entry.is_file():
                yield entry.name, entry.stat().st_size


def read_whole(name: str) -> bytes:
    """The content of a small file."""
    with store_errors(name), open_input(name) as file:
        return file.read()


def remove_outputs(names: Sequence[str]) -> None:
    """Delete files. If the owner of one made it read-only, that is an error and all are kept."""
    for name in names:
        if not is_address(name):
            check_not_read_only(Path(name))
    for name in names:
        if not is_address(name):
            Path(name).unlink(missing_ok=True)
            continue
        store, path = store_of(name)
        with suppress(FileNotFoundError), store_errors(name, "written to"):
            store.rm_file(path)


def remove_unfinished(folder: str, finished: set[str]) -> None:
    """Delete what killed writers left of files that are finished. Only a local disk keeps such parts for long."""
    if is_address(folder):
        return
    for part in Path(folder).glob(UNFINISHED):
        if any(part.name.startswith(f".{name}.") for name in finished):
            part.unlink(missing_ok=True)


def names_folder(name: str) -> bool:
    """Whether a name is that of a folder: by a separator at its end, by what is there, or because it is an address."""
    return name.endswith(("/", os.sep)) or is_address(name) or os.path.isdir(name)  # noqa: PTH112 (no exception for a name that is too long)


def inside(folder: str, name: str) -> str:
    """The path or address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_address(folder) else os.path.join(folder, name)  # noqa: PTH118


def folder_of(name: str) -> str:
    """The folder that a file is in."""
    return name.rpartition("/")[0] if is_address(name) else str(Path(name).parent)


def last_part(name: str) -> str:
    """The name of a file without its folders, and without the query of an address."""
    path = urlsplit(name).path or name if is_address(name) else name
    return path.rstrip("/").replace(os.sep, "/").rpartition("/")[2]


def expanded(pattern: str) -> list[str]:
    """The names that a pattern stands for: ranges such as {000..999}, and * ? [ ] for files that exist.

    Shells expand ranges too, but a job's command often passes none. A pattern without a match is returned as it is.
    """
    if (match := _RANGE.search(pattern)) is not None:
        first, last = match.groups()
        if int(last) - int(first) > 10_000_000:
            raise UsageError(f"{pattern}: {int(last) - int(first):,} names are too many")
        numbers = (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))
        before, after = pattern[: match.start()], pattern[match.end() :]
        return [name for number in numbers for name in expanded(f"{before}{number}{after}")]
    if not glob.has_magic(pattern):
        return [pattern]
    if not is_address(pattern):
        return sorted(glob.glob(pattern, recursive=True)) or [pattern]  # noqa: PTH207 (keeps names as given)
    if pattern.startswith(("http://", "https://")):  # "?" begins a query, and a web server lists nothing
        return [pattern]
    store, path = store_of(pattern)
    with store_errors(pattern):
        return [store.unstrip_protocol(match) for match in sorted(store.glob(path))] or [pattern]


def store_of(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    protocol = address.partition("://")[0].lower()
    if protocol not in PROTOCOLS or "::" in address:
        raise UsageError(f"{address}: this kind of address is not opened. Known: {', '.join(PROTOCOLS)}.")
    try:
        import fsspec

        return fsspec.core.url_to_fs(address)  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        if error.name == "fsspec":
            raise UsageError(f"{address}: addresses need the package fsspec: {install_command('scale')}") from None
        raise UsageError(f"{address}: {error}") from None
    except (ImportError, ValueError) as error:  # fsspec names the package that a protocol needs
        package = (getattr(error.__cause__, "name", None) or "").partition(".")[0]
        how = how_to_install(package) if package in EXTRAS else f"pip install {package}"
        raise UsageError(f"{address}: {error}{f': {how}' if package else ''}") from None


def is_on_web(address: str) -> bool:
    return address.lower().startswith(("http://", "https://"))


@contextmanager
def store_errors(name: str, attempt: str = "read") -> Iterator[None]:
    """Turn what libraries of stores raise into a few kinds of errors. Those about a file on a disk stay as they are.

    FileNotFoundError and PermissionError are about the file, StoreError about its store, and any other CaptionerError
    about the address. `attempt` says what could not be done with the store.
    """
    try:
        yield
    except CaptionerError:
        raise
    except Exception as error:
        if not is_address(name):
            raise
        raise _explained(name, error, attempt) from error


def _explained(name: str, error: Exception, attempt: str = "read") -> Exception:
    if is_on_web(name):
        return _explained_web(name, error)
    if isinstance(error, (FileNotFoundError, PermissionError)):
        return error
    return _unusable(name, error, attempt)


def _explained_web(name: str, error: Exception) -> Exception:
    """fsspec calls every failure of a web server a missing file; the real one is its cause."""
    cause = error
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        cause = error.__cause__
    status = getattr(cause, "status", None)
    if isinstance(cause, FileNotFoundError) or status in (404, 410):
        return FileNotFoundError(errno.ENOENT, "no such file", name)
    if isinstance(cause, PermissionError) or status in (401, 403):
        return PermissionError(errno.EACCES, "no permission to read it", name)
    if isinstance(status, int) and 400 <= status < 500 and status not in _BUSY:
        return CaptionerError(f"{name}: the web server refuses it (status {status})")
    return _unusable(name, cause, "read")


def _unusable(name: str, error: Exception, attempt: str) -> CaptionerError:
    sentence = f"({type(error).__name__}: {error})"
    if isinstance(error, ValueError):  # the address, and not its store
        return CaptionerError(f"{name}: cannot be opened {sentence}")
    return StoreError(f"{name}: the store cannot be {attempt} {sentence}")
