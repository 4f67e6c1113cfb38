"""The words of a caption that name a category."""

from __future__ import annotations

import pytest

from captioner.text.nouns import _NAMES, FUNCTION_WORDS, Mention, mentions

COCO = [name for name in _NAMES if name not in ("circle", "square", "triangle", "star", "cross")]


def labels(text: str, known: list[str] | None = None) -> list[str]:
    return [mention.label for mention in mentions(text.split(), COCO if known is None else known)]


def test_the_table_has_cocos_eighty_categories() -> None:
    assert len(COCO) == 80


@pytest.mark.parametrize("label", COCO)
def test_a_category_is_named_by_its_own_name(label: str) -> None:
    expected = [] if label == "orange" else [label]  # the colour is said far more often than the fruit
    if label == "potted plant":
        assert labels("a potted plant") == ["potted plant"]
    assert labels(f"a {label} here") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two puppies and a kitten", ["dog", "cat"]),
        ("men in an orange boat with oranges", ["person", "boat", "orange"]),
        ("a teddy bear on a couch", ["teddy bear", "couch"]),
        ("hot dogs near dogs", ["hot dog", "dog"]),
        ("a man at a train station by a bus stop", ["person"]),
        ("three knives, buses", ["bus"]),
        ("a Fire Hydrant", ["fire hydrant"]),
        ("benches and sandwiches", ["bench", "sandwich"]),
        ("", []),
    ],
)
def test_synonyms_plurals_and_longer_phrases_are_found(text: str, expected: list[str]) -> None:
    assert labels(text) == expected


def test_a_longer_phrase_hides_a_shorter_name_even_if_its_category_is_not_asked_for() -> None:
    assert labels("a teddy bear and a bear", ["bear"]) == ["bear"]


def test_a_label_outside_the_table_is_found_by_its_own_name() -> None:
    assert labels("two red widgets beside a Gear_box", ["widget"]) == ["widget"]
    assert mentions(["a", "gear", "box"], ["Gear-Box"]) == [Mention(1, 3, "Gear-Box")]


def test_shapes_are_found() -> None:
    shapes = ["circle", "square", "triangle", "star", "cross"]
    assert labels("a red square above a blue star", shapes) == ["square", "star"]


def test_no_function_word_names_a_category() -> None:
    assert [word for word in FUNCTION_WORDS if labels(word)] == []


def test_labels_of_other_data_sets_win_over_the_synonyms_of_coco():
    words = ["two", "men", "and", "a", "woman", "near", "children"]
    assert [mention.label for mention in mentions(words, {"man", "woman", "child", "tree"})] == [
        "man",
        "woman",
        "child",
    ]
    assert [mention.label for mention in mentions(words, {"person"})] == ["person"] * 3
