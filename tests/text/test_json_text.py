"""JSON that other programs can read, whatever a file is called and whatever a model computed."""

from __future__ import annotations

import json
import math

import pytest

from captioner.text.json_text import to_json

ODD = [
    "a\u2028b",
    "a\u0085b",
    "a\x0bb\rc\nd",
    "\u202egpj",
    b"\xff.jpg".decode("utf-8", "surrogateescape"),
    '"\\',
    "é🙂",
]


@pytest.mark.parametrize("name", ODD)
def test_python_reads_back_what_was_written_as_one_line_of_utf_8(name):
    text = to_json({"image": name})
    assert json.loads(text.encode("utf-8")) == {"image": name}
    assert len(text.splitlines()) == 1


def test_only_finite_numbers_are_written():
    values = {"score": -math.inf, "words": [math.nan, 1.5, {"x": math.inf}], "n": 3}
    assert json.loads(to_json(values), parse_constant=pytest.fail) == {
        "score": None,
        "words": [None, 1.5, {"x": None}],
        "n": 3,
    }
