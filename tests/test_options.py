"""SearchOptions: wrong values are refused with a sentence, old names are read, the fields are declared once."""

from __future__ import annotations

import importlib
from dataclasses import fields

import click
import numpy as np
import pytest

from captioner.errors import UsageError
from captioner.options import SearchKeywords, SearchOptions

NAMES = [option.name for option in fields(SearchOptions)]


def test_the_keyword_arguments_are_the_fields() -> None:
    assert list(SearchKeywords.__annotations__) == NAMES


@pytest.mark.parametrize("command", ["caption", "overlay"])
def test_commands_have_one_option_per_field(command: str) -> None:
    found: click.Command = importlib.import_module(f"captioner.cli.{command}").command
    assert set(NAMES) <= {parameter.name for parameter in found.params}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": "x"}, "beam must be a whole number, not 'x'"),
        ({"beam": 2.5}, r"beam must be a whole number, not 2\.5"),
        ({"beam": True}, "beam must be a whole number, not True"),
        ({"beam": 0}, "beam 0 is too small; the least is 1"),
        ({"n_best": 5, "beam": 2}, "n_best 5 needs a beam of 5"),
        ({"length_power": "long"}, "length_power must be a number"),
        ({"length_power": float("nan")}, "length_power"),
        ({"min_length": 5, "max_length": 4}, "at least 5 and at most 4 words"),
        ({"max_length": 1001}, "max_length 1001 is too large; the most is 1000"),
        ({"groups": 2}, "a beam of 3 cannot be divided into 2 equal groups"),
        ({"temperature": 0}, "temperature 0.0 is not positive"),
        ({"top_p": 0}, "top_p 0.0 is not above 0"),
        ({"sample": 1}, "sample must be True or False"),
        ({"sample": True, "required": "cat"}, "required words need beam search"),
        ({"forbidden": 3}, "forbidden must be a word or a list of words, not 3"),
        ({"required": [3]}, "required must be a word or a list of words, not 3"),
        ({"hard_attention": "argmin"}, "unknown hard_attention 'argmin'. Did you mean 'argmax'"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        SearchOptions(**options)  # type: ignore[arg-type]


def test_one_word_is_a_word_and_not_its_letters() -> None:
    options = SearchOptions(required="cat", forbidden="dog")  # type: ignore[arg-type]
    assert (options.required, options.forbidden) == ((("cat",),), ("dog",))


def test_required_words_may_have_alternatives() -> None:
    options = SearchOptions(required=["cat|kitten", ["dog", "puppy"], "mat"])  # type: ignore[arg-type]
    assert options.required == (("cat", "kitten"), ("dog", "puppy"), ("mat",))


def test_numbers_of_numpy_become_plain_ones() -> None:
    options = SearchOptions(beam=np.int64(4), length_power=np.float32(0.5))
    assert (type(options.beam), type(options.length_power)) == (int, float)


def test_names_of_the_first_version_are_read() -> None:
    options = SearchOptions.from_json({"beam": 2, "look": "argmax", "maximum_length": 9})
    assert options == SearchOptions(beam=2, hard_attention="argmax", max_length=9)


def test_the_summary_names_what_decides_scores() -> None:
    assert SearchOptions(beam=5, length_power=0.5, repeat_penalty=2).summary == (
        "beam 5, length power 0.5, repeat penalty 2"
    )
    assert SearchOptions().summary == "beam 3, length power 1"
