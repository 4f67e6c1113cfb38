"""Content words and whether references confirm them."""

from __future__ import annotations

import pytest

from captioner.metrics.content_words import function_words, precision, right_words
from captioner.metrics.meteor.resources import is_installed

pytestmark = pytest.mark.skipif(not is_installed(), reason="pycocoevalcap is not installed")


def test_a_content_word_is_right_if_a_reference_has_it_its_stem_or_a_synonym():
    words = ["a", "man", "is", "riding", "two", "bikes", "near", "an", "automobile", "and", "a", "giraffe"]
    references = ["Two men ride bicycles.", "A man on a bike, beside a car!"]
    right = dict(zip(words, right_words(words, references), strict=True))
    assert [right[word] for word in ("man", "riding", "bikes", "automobile")] == [True] * 4
    assert right["giraffe"] is False
    assert [right[word] for word in ("a", "is", "an", "and")] == [None] * 4


def test_words_without_letters_say_nothing():
    assert function_words(["the", "'", "dog", "."]) == ["the", "'", "."]


def test_precision_counts_content_words_only():
    assert precision([None, True, False, None, True, True]) == 0.75
    assert precision([None]) == 0
