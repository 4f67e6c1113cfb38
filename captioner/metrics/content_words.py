"""Content words of a caption, and whether the references confirm them.

A content word is a word that is not in METEOR's list of function words ("a", "on", "with"). It is right if a reference
has the word, a word with the same stem, or a synonym: METEOR's first three matchers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from captioner.metrics.meteor.resources import load_resources
from captioner.metrics.meteor.stem import stem
from captioner.metrics.meteor.words import meteor_words
from captioner.text.tokenizer import tokenize


def function_words(words: Iterable[str]) -> list[str]:
    """The words that say nothing about a picture: METEOR's function words, and tokens without a letter."""
    listed = load_resources().function_words
    return [word for word in words if word in listed or not any(letter.isalpha() for letter in word)]


def right_words(words: Sequence[str], references: Iterable[str]) -> list[bool | None]:
    """For each word of a caption, whether a raw reference confirms it; None for a function word."""
    resources = load_resources()
    confirmed = {word for reference in references for word in meteor_words(" ".join(tokenize(reference)))}
    stems = {stem(word) for word in confirmed}
    senses = {sense for word in confirmed for sense in resources.senses(word)}
    skipped = set(function_words(words))
    return [
        None
        if word in skipped
        else word in confirmed or stem(word) in stems or not senses.isdisjoint(resources.senses(word))
        for word in words
    ]


def precision(right: Sequence[bool | None]) -> float:
    """Share of the content words that are right; 0 if there is none."""
    content = [value for value in right if value is not None]
    return sum(content) / max(1, len(content))
