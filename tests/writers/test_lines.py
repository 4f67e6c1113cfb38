"""Lines of text, JSON and CSV: what a reader of the format gets back, and what a resumed run finds."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.writers.lines import LineWriter, finished_names, record
from captioner.writers.wording import Wording
from tests.overlay.handmade_captions import caption

NAMES = [
    "a.jpg",
    "tab\tand\nnewline.jpg",
    "back\\slash.jpg",
    'comma, "quote".jpg',
    "ünï.jpg",
    "line\u2028separator\x85.jpg",
]


def written(format, names=NAMES, **options) -> str:
    file = io.StringIO()
    writer = LineWriter(file, format, **options)
    for name in names:
        writer.write(name, caption("a dog runs", alternatives=("a cat",)))
    return file.getvalue()


def test_text_has_one_line_per_caption_with_the_name_before_a_tab():
    assert written("text", ["a.jpg"]) == "a.jpg\tA dog runs.\na.jpg\tA cat.\n"
    assert written("text").count("\n") == 2 * len(NAMES)


def test_csv_has_one_row_per_caption_with_its_rank():
    rows = list(csv.DictReader(io.StringIO(written("csv"))))
    assert [row["image"] for row in rows[::2]] == NAMES
    assert [(row["rank"], row["caption"]) for row in rows[:2]] == [("1", "a dog runs"), ("2", "a cat")]
    assert float(rows[0]["score"]) == -0.75


def test_jsonl_and_csv_have_the_plain_words_and_the_sentence():
    values = json.loads(written("jsonl", ["a.jpg"]))
    assert (values["caption"], values["sentence"]) == ("a dog runs", "A dog runs.")
    assert values["alternatives"][0]["sentence"] == "A cat."
    rows = list(csv.DictReader(io.StringIO(written("csv", ["a.jpg"]))))
    assert [(row["caption"], row["sentence"]) for row in rows] == [("a dog runs", "A dog runs."), ("a cat", "A cat.")]


def test_jsonl_and_csv_have_the_confidence_and_leave_it_empty_where_the_model_gives_none():
    sure, unsure = replace(caption("a dog"), confidence=0.81234), caption("a dog")
    assert [record("a.jpg", one)["confidence"] for one in (sure, unsure)] == [0.8123, None]
    file = io.StringIO()
    writer = LineWriter(file, "csv")
    for one in (sure, unsure):
        writer.write("a.jpg", one)
    assert [row["confidence"] for row in csv.DictReader(io.StringIO(file.getvalue()))] == ["0.8123", ""]


def test_the_wording_of_text_lines_can_be_chosen():
    assert written("text", ["a.jpg"], wording=Wording("plain", "<", ">")) == "a.jpg\t<a dog runs>\na.jpg\t<a cat>\n"


def test_csv_has_its_header_once():
    assert written("csv", append=True) == written("csv").split("\n", 1)[1]


def test_jsonl_has_one_line_per_picture_with_its_alternatives():
    lines = [json.loads(line) for line in written("jsonl").split("\n")[:-1]]
    assert [line["image"] for line in lines] == NAMES
    assert lines[0]["caption"] == "a dog runs"
    assert [other["caption"] for other in lines[0]["alternatives"]] == ["a cat"]
    assert "words" not in lines[0]


def test_the_log_probability_is_that_of_all_words_and_the_end():
    values = record("a.jpg", caption("a dog"))
    assert values["log_probability"] == pytest.approx(math.log(0.9) + math.log(0.85) - 0.2, abs=1e-5)


def test_words_are_written_with_their_values_when_asked_for():
    (line,) = written("jsonl", ["a.jpg"], words=True).splitlines()
    values = json.loads(line)
    assert [word["text"] for word in values["words"]] == ["a", "dog", "runs"]
    assert values["words"][1]["gate"] == pytest.approx(0.35)
    assert values["end"]["text"] == "<end>"


def test_the_cell_of_a_hard_model_is_written_and_a_soft_model_has_none():
    assert "cell" not in record("a.jpg", caption("a dog"), words=True)["words"][1]
    assert record("a.jpg", caption("a dog", hard=True), words=True)["words"][1]["cell"] == [0, 1]


@pytest.mark.parametrize("format", ["text", "jsonl", "csv"])
def test_the_names_of_a_file_are_read_back(tmp_path: Path, format):
    path = tmp_path / "out"
    path.write_text(written(format), encoding="utf-8", newline="")
    assert finished_names(path, format) == set(NAMES)
    assert finished_names(tmp_path / "none", format) == set()


@pytest.mark.parametrize("format", ["text", "jsonl", "csv"])
def test_an_incomplete_last_line_is_removed(tmp_path: Path, format):
    path = tmp_path / "out"
    complete = written(format, ["a.jpg"])
    path.write_text(complete + written(format, ["b.jpg"], append=True).splitlines()[0][:-3])
    assert finished_names(path, format) == {"a.jpg"}
    assert path.read_text() == complete


@pytest.mark.parametrize(("format", "content"), [("jsonl", "[]\n"), ("jsonl", "no\n"), ("csv", "image,text\n")])
def test_a_file_of_another_kind_is_refused_and_left_as_it_was(tmp_path: Path, format, content):
    path = tmp_path / "out"
    path.write_text(content + "half")
    with pytest.raises(UsageError, match=r"cannot resume.*choose another --output"):
        finished_names(path, format)
    assert path.read_text() == content + "half"


def test_closing_leaves_standard_output_open(capsys):
    LineWriter(sys.stdout, "text").close()
    assert not sys.stdout.closed
