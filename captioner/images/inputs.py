"""Which pictures a command line names: files, folders, patterns, lists, and a picture on standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.errors import UsageError
from captioner.images.decoding import SUFFIXES
from captioner.images.file_kinds import HEADER, file_kind, kind_of

_ADDRESS_IN_A_LIST = (
    "download the picture, or write its address to list.txt for "
    "captioner caption list.txt --format parquet --output captions/"
)
STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


class PictureBytes(bytes):
    """An encoded picture that came without a file."""

    name = "stdin"


@dataclass(frozen=True)
class Skipped:
    """An input without a caption. `group` and `format` are for counting: "raw" and "NEF", "missing" and ""."""

    name: str
    group: str
    reason: str
    format: str = ""


@dataclass
class Inputs:
    """The pictures of a command line. Names from standard input are read while the work goes on."""

    pictures: list[str | PictureBytes] = field(default_factory=list)
    listed: Iterable[str] | None = None  # names on standard input, which may come slowly
    problems: list[Skipped] = field(default_factory=list)  # arguments that name nothing
    left_out: list[Skipped] = field(default_factory=list)  # drawings, videos and folders that were not asked for

    def __iter__(self) -> Iterator[str | PictureBytes]:
        yield from self.pictures
        for line in self.listed or ():
            if name := line.rstrip("\r\n"):
                yield name


def find(arguments: Sequence[str], *, recursive: bool = False, listed: Iterable[str] | None = None) -> Inputs:
    """Pictures in the order of the arguments, each once; pictures of a folder by name; listed names last.

    `-` stands for standard input, which is `listed`: a picture, or names, one per line. A file that is named is taken
    as it is; if it cannot be read, the reader says so. Files in folders and patterns are recognised by content. No
    picture at all is an error.
    """
    inputs = Inputs()
    unique: dict[str | PictureBytes, None] = {}
    for argument in arguments:
        path = Path(argument)
        if argument in STANDARD_INPUT:
            if (picture := _picture_on(listed)) is not None:
                unique[picture] = None
            else:
                inputs.listed = listed
        elif path.is_dir():
            inside = list(_folder(argument, recursive, inputs))
            if not inside:
                more = "" if recursive else "; --recursive looks in the folders inside it too"
                inputs.problems.append(
                    Skipped(argument, "empty folder", f"{argument}: no pictures in this folder{more}")
                )
            unique.update(dict.fromkeys(inside))
        elif os.path.lexists(path):
            unique[argument] = None
        elif "://" in argument:
            reason = f"{argument}: addresses are opened only in lists and shards: {_ADDRESS_IN_A_LIST}"
            inputs.problems.append(Skipped(argument, "address", reason))
        elif glob.has_magic(argument):
            matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207 (keeps names as they were given)
            files = list(_pictures(matches, inputs))
            if "**" not in argument:
                inputs.left_out += [_not_entered(match) for match in matches if Path(match).is_dir()]
            if not files:
                reason = f"{argument}: no picture matches this pattern"
                inputs.problems.append(Skipped(argument, "missing", reason))
            unique.update(dict.fromkeys(files))
        else:
            inputs.problems.append(Skipped(argument, "missing", f"{argument}: no such file"))
    inputs.pictures = list(unique)
    if not inputs.pictures and inputs.listed is None:
        raise UsageError("no picture to caption. " + "; ".join(problem.reason for problem in inputs.problems))
    return inputs


def _picture_on(stream: Iterable[str] | None) -> PictureBytes | None:
    """The picture that standard input holds. None where it holds text: a list may still be being written."""
    buffer = getattr(stream, "buffer", None)
    if buffer is None or not kind_of(buffer.peek(HEADER)[:HEADER]).holds_picture:
        return None
    return PictureBytes(buffer.read())


def _folder(folder: str, recursive: bool, inputs: Inputs) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        paths = {name: os.path.join(here, name) for name in sorted(folders) if not name.startswith(".")}  # noqa: PTH118
        if recursive:
            links = [path for path in paths.values() if Path(path).is_symlink()]
            reason = "a link to a folder is not entered; name it as a PATH"
            inputs.left_out += [Skipped(link, "linked folder not entered", f"{link}: {reason}") for link in links]
        else:
            inputs.left_out += [_not_entered(path) for path in paths.values()]
        folders[:] = list(paths) if recursive else []
        yield from _pictures((os.path.join(here, name) for name in sorted(files)), inputs)  # noqa: PTH118


def _pictures(names: Iterable[str], inputs: Inputs) -> Iterator[str]:
    """The files that hold a picture or are named like one. Drawings and videos are noted, other files are not."""
    for name in names:
        if Path(name).name.startswith(".") or not Path(name).is_file():
            continue
        if name.lower().endswith(SUFFIXES):
            yield name
            continue
        kind = file_kind(Path(name))
        if kind.holds_picture:
            yield name
        elif kind.group != "other":
            inputs.left_out.append(Skipped(name, kind.group, f"{name}: {kind.format}, not a photo", kind.format))


def _not_entered(folder: str) -> Skipped:
    return Skipped(folder, "folder not entered", f"{folder}: a folder that is not entered; use --recursive")
