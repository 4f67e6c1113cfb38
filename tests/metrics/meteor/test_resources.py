"""The tables are read from small files in METEOR's format, indexed once, and read back equal."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import platformdirs
import pytest

from captioner.metrics.meteor import resources as module
from captioner.metrics.meteor.resources import Files, load_resources, phrase_number, phrases

ENTRIES = {
    "function/english.words": "the\na\n",
    "synonym/english.exceptions": "run\nran running\nmouse\nmice\n",
    "synonym/english.synsets": "run\n5 9\nmouse\n3\ndog\n1 2\nhound\n2\nfate\n8\nfat\n7\nbass\n4\n",
}
PAIRS = [("fast", "quickly"), ("fast", "at a rapid rate"), ("a lot of", "many"), ("fast", "rapid")]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    files = Files(tmp_path / "meteor.jar", tmp_path / "paraphrases.gz")
    with zipfile.ZipFile(files.jar, "w") as jar:
        for name, content in ENTRIES.items():
            jar.writestr(name, content)
    table = "".join(f"0.5\n{a}\n{b}\n" for a, b in PAIRS)
    files.paraphrases.write_bytes(gzip.compress(table.encode()))
    monkeypatch.setattr(Files, "find", classmethod(lambda cls: files))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return files


def load() -> module.Resources:
    return load_resources.__wrapped__()


def test_paraphrases_keep_the_tables_order(files: Files) -> None:
    expected = [phrase_number(p.split()) for p in ("quickly", "at a rapid rate", "rapid")]
    assert load().paraphrases[phrase_number(["fast"])] == expected
    assert load().paraphrases[phrase_number(["quickly"])] == []


def test_senses_are_those_of_the_word_and_its_base_form(files: Files) -> None:
    senses = load().senses
    assert senses("dog") == {1, 2} and senses("hounds") == {2}
    assert senses("ran") == senses("running") == {5, 9}
    assert senses("mice") == {3} and senses("fates") == {8} and senses("bass") == {4} and senses("zebra") == set()


def test_the_second_load_reads_the_index_and_not_the_table(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not module.is_indexed()
    first = load()
    assert module.is_indexed()

    def fail(_: Files) -> None:
        raise AssertionError("the table was read again")

    monkeypatch.setattr(module, "_paraphrase_table", fail)
    second = load()
    for table in ("paraphrases", "synonyms"):
        for array in ("keys", "begins", "values"):
            assert (getattr(getattr(first, table), array) == getattr(getattr(second, table), array)).all()
    assert list(files.index_file().parent.iterdir()) == [files.index_file()]


def test_a_broken_index_is_built_again(files: Files) -> None:
    load()
    files.index_file().write_bytes(b"half a file")
    assert load().senses("dog") == {1, 2}
    assert files.index_file().stat().st_size > 1000


def test_other_files_have_another_index(files: Files) -> None:
    before = files.index_file()
    files.paraphrases.write_bytes(gzip.compress(b"0.5\nslow\nslowly\n"))
    assert files.index_file() != before


def test_a_cache_folder_that_cannot_be_written_is_no_error(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load().senses("dog") == {1, 2}


def test_the_cache_folder_is_the_platforms_unless_the_environment_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.cache_folder() == tmp_path / "captioner"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert module.cache_folder() == platformdirs.user_cache_path("captioner", appauthor=False)


def test_a_phrase_has_the_same_number_alone_and_in_a_sentence() -> None:
    words = "a b c d e f g h i".split()  # noqa: SIM905
    found = {(start, length): number for start, length, number in phrases(words)}
    assert max(length for _, length in found) == 7 and len(set(found.values())) == len(found) == 42
    for (start, length), number in found.items():
        assert number == phrase_number(words[start : start + length])
