"""The pictures that a command line names: files, folders, patterns, and a list on standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.errors import UsageError
from captioner.images.decoding import SUFFIXES
from captioner.images.reading import is_url


@dataclass
class Inputs:
    """The names of pictures, and those that are still to be read from a list."""

    names: list[str] = field(default_factory=list)
    coming: Iterable[str] | None = None  # lines of the list
    problems: list[str] = field(default_factory=list)  # arguments without a picture

    def __iter__(self) -> Iterator[str]:
        yield from self.names
        for line in self.coming or ():
            if name := line.rstrip("\r\n"):
                yield name


def find(arguments: Sequence[str], *, recursive: bool = False, listed: Iterable[str] | None = None) -> Inputs:
    """Pictures in the order of the arguments without duplicates, those of a folder by name; then those of the list.

    `-` stands for the names in `listed`, one per line. A named file is taken whatever its suffix; reading it reports
    what is wrong with it. No picture at all is an error.
    """
    inputs = Inputs()
    names: dict[str, None] = {}
    for argument in arguments:
        path = Path(argument)
        if argument == "-":
            inputs.coming = listed
        elif path.is_dir():
            pictures = list(_pictures_of_folder(argument, recursive))
            if not pictures:
                hint = "" if recursive else "; --recursive includes the folders inside it"
                inputs.problems.append(f"{argument}: no pictures in this folder{hint}")
            names.update(dict.fromkeys(pictures))
        elif os.path.lexists(path):
            names[argument] = None
        elif glob.has_magic(argument):
            matches = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207 (keeps names as they were given)
            files = [match for match in matches if Path(match).is_file() and _is_picture(match)]
            if not files:
                inputs.problems.append(f"{argument}: no picture matches this pattern")
            names.update(dict.fromkeys(files))
        elif is_url(argument):
            inputs.problems.append(f"{argument}: URLs are not opened; download the picture first")
        else:
            inputs.problems.append(f"{argument}: no such file")
    inputs.names = list(names)
    if not inputs.names and inputs.coming is None:
        raise UsageError("no picture to caption. " + "; ".join(inputs.problems))
    return inputs


def _pictures_of_folder(folder: str, recursive: bool) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if recursive else []
        yield from (os.path.join(parent, name) for name in sorted(files) if _is_picture(name))  # noqa: PTH118


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not Path(name).name.startswith(".")
