"""Length, distinct n-grams and unseen captions, compared with hand-computed values."""

from __future__ import annotations

import pytest

from captioner.metrics.diversity import diversity


def test_figures_equal_hand_computed_values() -> None:
    found = diversity(["a dog runs", "a dog", "A dog."], ["a dog .", "something else"])
    assert found is not None
    assert found.length.value == pytest.approx(7 / 3)
    assert found.vocabulary == 3
    assert found.distinct == {1: pytest.approx(3 / 7), 2: pytest.approx(2 / 4)}
    assert found.different == pytest.approx(2 / 3)
    assert found.unseen is not None and found.unseen.value == pytest.approx(1 / 3)  # only "a dog runs" is new


def test_without_training_captions_there_is_no_share_of_unseen_captions() -> None:
    found = diversity(["a dog"])
    assert found is not None and found.unseen is None


def test_an_empty_caption_counts_as_a_caption() -> None:
    found = diversity(["", "a dog"])
    assert found is not None
    assert (found.captions, found.empty, found.length.value) == (2, 1, 1.0)


def test_without_captions_there_are_no_figures() -> None:
    assert diversity([]) is None


def test_captions_that_repeat_a_noun_are_counted() -> None:
    captions = [
        "a white toilet in a bathroom with a toilet",
        "a red stop sign next to another stop sign",
        "a building in front of a building",
        "a hot dog and a dog",  # two things
        "a man and a woman on a white couch with a white cat",  # adjectives may be repeated
        "two dogs on a very very big bed",
    ]
    found = diversity(captions)
    assert found is not None and found.repeating.value == pytest.approx(3 / 6)
