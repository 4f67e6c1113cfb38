"""METEOR's English word lists, read from the files that pycocoevalcap installs.

The jar is opened as the zip archive it is; nothing in it is run. The paraphrase table (5.3 million pairs) and the
synonym sets are turned once into sorted arrays of hashes and kept in the user's cache folder.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from captioner.errors import CaptionerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST_PHRASE = 7  # words; the paraphrase table has none longer
_FORMAT = 1  # of the index; a new one makes old cache files useless
_PRIME, _BASE = (1 << 61) - 1, 0x9E3779B97F4A7C15 % ((1 << 61) - 1)

# Endings taken off when a word is not in the synonym table as it stands; the first that leads to a known word.
_ENDINGS = [
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    *(("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
]


class MeteorUnavailableError(CaptionerError):
    """The files METEOR needs are not there."""


@cache
def word_number(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % _PRIME


def phrase_number(words: Iterable[str]) -> int:
    """One number for a phrase; two phrases share one about once in 10^18 pairs."""
    number = 0
    for word in words:
        number = (number * _BASE + word_number(word)) % _PRIME
    return number


def phrases(words: list[str]) -> Iterator[tuple[int, int, int]]:
    """(start, length, number) of every phrase in a sentence that could be in the table, shorter ones first."""
    numbers = [word_number(word) for word in words]
    for start in range(len(words)):
        number = 0
        for end in range(start, min(start + LONGEST_PHRASE, len(words))):
            number = (number * _BASE + numbers[end]) % _PRIME
            yield start, end - start + 1, number


@dataclass(frozen=True)
class Table:
    """Lists of numbers, found by a number: `values[begins[i]:begins[i + 1]]` belong to `keys[i]`, sorted."""

    keys: NDArray[np.int64]
    begins: NDArray[np.int32]
    values: NDArray[np.int64]

    def __getitem__(self, key: int) -> list[int]:
        at = int(np.searchsorted(self.keys, key))
        if at == len(self.keys) or self.keys[at] != key:
            return []
        found: list[int] = self.values[self.begins[at] : self.begins[at + 1]].tolist()
        return found

    def known(self, numbers: set[int]) -> set[int]:
        """Those of the numbers that are keys."""
        array = np.fromiter(numbers, np.int64, len(numbers))
        found: list[int] = array[np.isin(array, self.keys)].tolist()
        return set(found)

    @classmethod
    def group(cls, keys: NDArray[np.int64], values: NDArray[np.int64]) -> Table:
        """From pairs; the values of a key keep their order."""
        order = np.argsort(keys, kind="stable")
        unique, counts = np.unique(keys, return_counts=True)
        begins = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        return cls(unique, begins, values[order])


@dataclass
class Resources:
    """What METEOR knows about English."""

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
        for ending, instead in _ENDINGS:
            if word.endswith(ending) and len(word) > 2 and not word.endswith("ss"):
                senses = self.synonyms[word_number(word[: len(word) - len(ending)] + instead)]
                if senses:
                    return frozenset(senses)
        return frozenset()


@dataclass(frozen=True)
class Files:
    """The two files of METEOR 1.5 that the resources come from."""

    jar: Path
    paraphrases: Path

    @classmethod
    def find(cls) -> Files:
        package = importlib.util.find_spec("pycocoevalcap")
        if package is None or not package.submodule_search_locations:
            raise MeteorUnavailableError("METEOR needs the package pycocoevalcap: pip install pycocoevalcap")
        folder = Path(package.submodule_search_locations[0]) / "meteor"
        files = cls(folder / "meteor-1.5.jar", folder / "data" / "paraphrase-en.gz")
        for file in (files.jar, files.paraphrases):
            if not file.is_file():
                raise MeteorUnavailableError(f"METEOR needs {file}, which this installation lacks")
        return files

    def index_file(self) -> Path:
        """Where the index of these very files is kept: their checksums are in its name."""
        with zipfile.ZipFile(self.jar) as jar:
            checksum = jar.getinfo("synonym/english.synsets").CRC
        with self.paraphrases.open("rb") as stream:
            stream.seek(-8, os.SEEK_END)  # gzip ends with the checksum and size of what it holds
            trailer = stream.read().hex()
        return cache_folder() / f"meteor-{_FORMAT}-{checksum:08x}-{trailer}.npz"


def cache_folder() -> Path:
    """The folder for files that can be made again, by the platform's custom."""
    if "XDG_CACHE_HOME" in os.environ:
        return Path(os.environ["XDG_CACHE_HOME"]) / "captioner"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "captioner" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "captioner"
    return Path.home() / ".cache" / "captioner"


def is_installed() -> bool:
    """Whether METEOR's files are there at all."""
    try:
        Files.find()
    except MeteorUnavailableError:
        return False
    return True


def is_indexed() -> bool:
    """Whether METEOR starts at once, or must read its tables first (about half a minute)."""
    try:
        return Files.find().index_file().is_file()
    except MeteorUnavailableError:
        return False


def first_use() -> str | None:
    """What to tell somebody who waits: METEOR's tables are read once, and that has not happened yet."""
    return "reading METEOR's tables, once: half a minute …" if is_installed() and not is_indexed() else None


@cache
def load_resources() -> Resources:
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
    """Triples of lines: a probability (not used in matching), a phrase, its paraphrase."""
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
    """Under a temporary name first, so that no reader ever meets half a file. A full disk is no error."""
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
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as unfinished:
            unfinished.write(content.getbuffer())
        Path(unfinished.name).replace(file)
    except OSError:
        return
