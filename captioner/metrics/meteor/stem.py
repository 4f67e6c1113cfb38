"""The English stemmer "Porter2" of the Snowball project, from its published description.

METEOR's stem matcher depends on it letter by letter; what nltk calls by that name differs for some words
("realization"), and takes longer to import than it takes to stem every word of a results file.
"""

from __future__ import annotations

import re
from functools import lru_cache

_IRREGULAR = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_DONE_AFTER_PLURAL = frozenset(["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"])

_VOWEL = "[aeiouy]"
_CONSONANT = "[^aeiouy]"
_HAS_VOWEL = re.compile(_VOWEL)
_REGION = re.compile(f"{_VOWEL}{_CONSONANT}")
_SHORT_SYLLABLE = re.compile(f"(?:{_CONSONANT}{_VOWEL}[^aeiouywxY]|^{_VOWEL}{_CONSONANT})$")
_DOUBLE = ("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt")
_BEFORE_LI = frozenset("cdeghkmnrt")

# suffix -> what takes its place, where the suffix lies in the first region
_STEP_2 = {
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "abli": "able",
    "entli": "ent",
    "izer": "ize",
    "ization": "ize",
    "ational": "ate",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "aliti": "al",
    "alli": "al",
    "fulness": "ful",
    "ousli": "ous",
    "ousness": "ous",
    "iveness": "ive",
    "iviti": "ive",
    "biliti": "ble",
    "bli": "ble",
    "ogi": "og",
    "fulli": "ful",
    "lessli": "less",
    "li": "",
}
_STEP_3 = {
    "tional": "tion",
    "ational": "ate",
    "alize": "al",
    "icate": "ic",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
    "ative": "",
}
_STEP_4 = [
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent"),
    *("ism", "ate", "iti", "ous", "ive", "ize", "ion"),
]
_LONGEST_FIRST = {
    step: sorted(suffixes, key=len, reverse=True)
    for step, suffixes in {2: list(_STEP_2), 3: list(_STEP_3), 4: _STEP_4}.items()
}


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = word.removeprefix("'")
    # A "y" that stands for a consonant is written "Y" until the end.
    word = re.sub(f"(^|{_VOWEL})y", r"\1Y", word)
    first, second = _regions(word)
    word = _without_plural(_without_possessive(word))
    if word in _DONE_AFTER_PLURAL:
        return word
    word = _without_verb_ending(word, first)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in "aeiouy":
        word = word[:-1] + "i"
    word = _step_2(word, first)
    word = _step_3(word, first, second)
    word = _step_4(word, second)
    return _without_final_e_or_l(word, first, second).lower()


def _regions(word: str) -> tuple[int, int]:
    """Where the two regions begin: after the first consonant that follows a vowel, and the same again."""
    prefix = re.match("gener|commun|arsen", word)
    match = _REGION.search(word)
    first = prefix.end() if prefix else match.end() if match else len(word)
    match = _REGION.search(word, first)
    return first, match.end() if match else len(word)


def _without_possessive(word: str) -> str:
    for suffix in ("'s'", "'s", "'"):
        if word.endswith(suffix):
            return word[: -len(suffix)]
    return word


def _without_plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")):
        return word
    if word.endswith("s") and _HAS_VOWEL.search(word[:-2]):
        return word[:-1]
    return word


def _without_verb_ending(word: str, first: int) -> str:
    for suffix in ("eedly", "eed"):
        if word.endswith(suffix):
            return word[: -len(suffix)] + "ee" if len(word) - len(suffix) >= first else word
    for suffix in ("ingly", "edly", "ing", "ed"):
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            if not _HAS_VOWEL.search(left):
                return word
            if left.endswith(("at", "bl", "iz")):
                return left + "e"
            if left.endswith(_DOUBLE):
                return left[:-1]
            return left + "e" if len(left) <= first and _SHORT_SYLLABLE.search(left) else left
    return word


def _step_2(word: str, first: int) -> str:
    for suffix in _LONGEST_FIRST[2]:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            wrong_letter = (suffix == "ogi" and left[-1:] != "l") or (suffix == "li" and left[-1:] not in _BEFORE_LI)
            return word if len(left) < first or wrong_letter else left + _STEP_2[suffix]
    return word


def _step_3(word: str, first: int, second: int) -> str:
    for suffix in _LONGEST_FIRST[3]:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            begins = second if suffix == "ative" else first
            return left + _STEP_3[suffix] if len(left) >= begins else word
    return word


def _step_4(word: str, second: int) -> str:
    for suffix in _LONGEST_FIRST[4]:
        if word.endswith(suffix):
            left = word[: -len(suffix)]
            wrong_letter = suffix == "ion" and left[-1:] not in ("s", "t")
            return word if len(left) < second or wrong_letter else left
    return word


def _without_final_e_or_l(word: str, first: int, second: int) -> str:
    left = word[:-1]
    if word.endswith("e") and (len(left) >= second or (len(left) >= first and not _SHORT_SYLLABLE.search(left))):
        return left
    if word.endswith("ll") and len(left) >= second:
        return left
    return word
