"""Which pictures a command line names: files, folders, patterns, and lists on standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.errors import UsageError
from captioner.images.decoding import SUFFIXES


@dataclass
class Inputs:
    """The pictures found before work begins, and where a list is read as it comes, the names still to come."""

    names: list[str] = field(default_factory=list)
    coming: Iterable[str] | None = None
    problems: list[str] = field(default_factory=list)  # arguments that name nothing

    def __iter__(self) -> Iterator[str]:
        yield from self.names
        for line in self.coming or ():
            if name := line.rstrip("\r\n"):
                yield name


def find(arguments: Sequence[str], *, recursive: bool = False, listed: Iterable[str] | None = None) -> Inputs:
    """Pictures in the order of the arguments, each once, those of a folder by name; then the list's.

    `-` stands for the names in `listed`, one a line. A file that is named is taken as it is, whatever its
    suffix; if it cannot be read, the reader says so. No picture at all is an error.
    """
    inputs = Inputs()
    found: dict[str, None] = {}
    for argument in arguments:
        path = Path(argument)
        if argument == "-":
            inputs.coming = listed
        elif path.is_dir():
            inside = list(_folder(argument, recursive))
            if not inside:
                more = "" if recursive else "; --recursive looks in the folders inside it too"
                inputs.problems.append(f"{argument}: no pictures in this folder{more}")
            found.update(dict.fromkeys(inside))
        elif os.path.lexists(path):
            found[argument] = None
        elif glob.has_magic(argument):
            matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207 (keeps names as they were given)
            files = [match for match in matches if Path(match).is_file() and _is_picture(match)]
            if not files:
                inputs.problems.append(f"{argument}: no picture matches this pattern")
            found.update(dict.fromkeys(files))
        else:
            inputs.problems.append(f"{argument}: no such file")
    inputs.names = list(found)
    if not inputs.names and inputs.coming is None:
        raise UsageError("no picture to caption. " + "; ".join(inputs.problems))
    return inputs


def _folder(folder: str, recursive: bool) -> Iterator[str]:
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if recursive else []
        yield from (os.path.join(here, name) for name in sorted(files) if _is_picture(name))  # noqa: PTH118


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not Path(name).name.startswith(".")
