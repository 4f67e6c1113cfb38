"""METEOR's English word lists, read from the files that pycocoevalcap installs.

The jar is read as a zip archive; nothing in it is executed. The first use turns the paraphrase table (5.3 million
pairs) and the synonym sets into sorted arrays of hashes. This index is kept in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_PHRASE = 7  # words; the paraphrase table has none longer
_FORMAT = 1  # version of the index file; a change makes old files unused
_PRIME, _BASE = (1 << 61) - 1, 0x9E3779B97F4A7C15 % ((1 << 61) - 1)

# Endings and their replacements. The first that leads to a word of the synonym table gives the base form.
_ENDINGS = [
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    *(("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
]


class MeteorUnavailableError(CaptionerError):
    """The files that METEOR needs are not installed."""


@cache
def word_number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % _PRIME


def phrase_number(words: Iterable[str]) -> int:
    """A hash of a phrase. Two phrases share a hash about once in 10^18 pairs."""
    number = 0
    for word in words:
        number = (number * _BASE + word_number(word)) % _PRIME
    return number


def phrases(words: list[str]) -> Iterator[tuple[int, int, int]]:
    """(start, length, number) of every phrase in a sentence that may be in the table."""
    numbers = [word_number(word) for word in words]
    for start in range(len(words)):
        number = 0
        for end in range(start, min(start + LONGEST_PHRASE, len(words))):
            number = (number * _BASE + numbers[end]) % _PRIME
            yield start, end - start + 1, number


@dataclass(frozen=True)
class Table:
    """Maps a number to a list of numbers. `keys` is sorted; `values[begins[i]:begins[i + 1]]` belong to `keys[i]`."""

    keys: NDArray[np.int64]
    begins: NDArray[np.int32]
    values: NDArray[np.int64]

    def __getitem__(self, key: int) -> list[int]:
        row = int(np.searchsorted(self.keys, key))
        if row == len(self.keys) or self.keys[row] != key:
            return []
        values: list[int] = self.values[self.begins[row] : self.begins[row + 1]].tolist()
        return values

    def known(self, numbers: set[int]) -> set[int]:
        """The numbers that are keys."""
        array = np.fromiter(numbers, np.int64, len(numbers))
        keys: list[int] = array[np.isin(array, self.keys)].tolist()
        return set(keys)

    @classmethod
    def group(cls, keys: NDArray[np.int64], values: NDArray[np.int64]) -> Table:
        """Build from pairs of key and value. The values of a key keep their order."""
        order = np.argsort(keys, kind="stable")
        unique, counts = np.unique(keys, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return cls(unique, begins, values[order])


@dataclass
class Resources:
    """METEOR's word lists and tables for English."""

    function_words: frozenset[str]
    paraphrases: Table
    synonyms: Table
    base_forms: dict[str, list[str]]
    _senses: dict[str, frozenset[int]] = field(default_factory=dict, repr=False)

    def senses(self, word: str) -> frozenset[int]:
        """The numbers of the synonym sets of a word and of its base form."""
        if word not in self._senses:
            self._senses[word] = frozenset(self.synonyms[word_number(word)]) | self._base_senses(word)
        return self._senses[word]

    def _base_senses(self, word: str) -> frozenset[int]:
        if word in self.base_forms:
            return frozenset(n for base in self.base_forms[word] for n in self.synonyms[word_number(base)])
        for ending, replacement in _ENDINGS:
            if word.endswith(ending) and len(word) > 2 and not word.endswith("ss"):
                senses = self.synonyms[word_number(word[: len(word) - len(ending)] + replacement)]
                if senses:
                    return frozenset(senses)
        return frozenset()


@dataclass(frozen=True)
class Files:
    """The two files of METEOR 1.5 that contain the resources."""

    jar: Path
    paraphrases: Path

    @classmethod
    def find(cls) -> Files:
        """The files of the installed pycocoevalcap."""
        package = importlib.util.find_spec("pycocoevalcap")
        if package is None or not package.submodule_search_locations:
            raise MeteorUnavailableError("METEOR needs the package pycocoevalcap: pip install pycocoevalcap")
        folder = Path(package.submodule_search_locations[0]) / "meteor"
        files = cls(folder / "meteor-1.5.jar", folder / "data" / "paraphrase-en.gz")
        for file in (files.jar, files.paraphrases):
            if not file.is_file():
                raise MeteorUnavailableError(f"METEOR needs {file}, which is missing: reinstall pycocoevalcap")
        return files

    def index_file(self) -> Path:
        """The index of these files. Its name contains their checksums, so other versions get another index."""
        with zipfile.ZipFile(self.jar) as jar:
            checksum = jar.getinfo("synonym/english.synsets").CRC
        with self.paraphrases.open("rb") as stream:
            stream.seek(-8, os.SEEK_END)  # a gzip file ends with the checksum and the size of its content
            trailer = stream.read().hex()
        return cache_folder() / f"meteor-{_FORMAT}-{checksum:08x}-{trailer}.npz"


def cache_folder() -> Path:
    """The platform's folder for files that can be built again; below XDG_CACHE_HOME, if set, on every platform."""
    from platformdirs import user_cache_path

    if "XDG_CACHE_HOME" in os.environ:
        return Path(os.environ["XDG_CACHE_HOME"]) / "captioner"
    return user_cache_path("captioner", appauthor=False)


def is_installed() -> bool:
    """Whether METEOR's files are installed."""
    try:
        Files.find()
    except MeteorUnavailableError:
        return False
    return True


def is_indexed() -> bool:
    """Whether the index exists. Without it, the first use takes about half a minute."""
    try:
        return Files.find().index_file().is_file()
    except MeteorUnavailableError:
        return False


def first_use() -> str | None:
    """A notice for the user if the first use has to build the index; else None."""
    return (
        "building METEOR's index, which takes half a minute and happens once …"
        if is_installed() and not is_indexed()
        else None
    )


@cache
def load_resources() -> Resources:
    """Read the index and the word lists. Build the index if it is missing or broken."""
    files = Files.find()
    index = files.index_file()
    try:
        tables = _read_index(index)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        tables = (_paraphrase_table(files), _synonym_table(files))
        _write_index(index, *tables)
    paraphrases, synonyms = tables
    base_forms: dict[str, list[str]] = {}
    lines = _jar_lines(files, "synonym/english.exceptions")
    for base, forms in zip(lines[::2], lines[1::2], strict=True):
        for form in forms.split():
            base_forms.setdefault(form, []).append(base)
    function_words = frozenset(_jar_lines(files, "function/english.words"))
    return Resources(function_words, paraphrases, synonyms, base_forms)


def _jar_lines(files: Files, name: str) -> list[str]:
    with zipfile.ZipFile(files.jar) as jar:
        return jar.read(name).decode("utf-8").split("\n")[:-1]


def _synonym_table(files: Files) -> Table:
    lines = _jar_lines(files, "synonym/english.synsets")
    keys, values = [], []
    for word, numbers in zip(lines[::2], lines[1::2], strict=True):
        for number in numbers.split():
            keys.append(word_number(word))
            values.append(int(number))
    return Table.group(np.array(keys, np.int64), np.array(values, np.int64))


def _paraphrase_table(files: Files) -> Table:
    """The file has three lines per pair: a probability (not used in matching), a phrase, its paraphrase."""
    keys, values = [], []
    with gzip.open(files.paraphrases, "rt", encoding="utf-8", newline="\n") as raw:
        source, key = "", 0
        for _ in raw:
            line = next(raw)
            if line != source:
                source, key = line, phrase_number(line.split())
            keys.append(key)
            values.append(phrase_number(next(raw).split()))
    return Table.group(np.array(keys, np.int64), np.array(values, np.int64))


def _read_index(file: Path) -> tuple[Table, Table]:
    with np.load(file, allow_pickle=False) as arrays:
        return (
            Table(arrays["phrases"], arrays["phrase_begins"], arrays["paraphrases"]),
            Table(arrays["words"], arrays["word_begins"], arrays["synonyms"]),
        )


def _write_index(file: Path, paraphrases: Table, synonyms: Table) -> None:
    """A folder that can't be written or a full disk is no error: the index is then built again next time."""
    content = io.BytesIO()
    np.savez(
        content,
        phrases=paraphrases.keys,
        phrase_begins=paraphrases.begins,
        paraphrases=paraphrases.values,
        words=synonyms.keys,
        word_begins=synonyms.begins,
        synonyms=synonyms.values,
    )
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content.getvalue())
