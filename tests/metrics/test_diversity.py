"""Length, distinct n-grams and unseen captions, by hand."""

from __future__ import annotations

import pytest

from captioner.metrics.diversity import diversity


def test_counts_by_hand() -> None:
    found = diversity(["a dog runs", "a dog", "A dog."], ["a dog .", "something else"])
    assert found is not None
    assert found.length.value == pytest.approx(7 / 3)
    assert found.vocabulary == 3
    assert found.distinct == {1: pytest.approx(3 / 7), 2: pytest.approx(2 / 4)}
    assert found.different == pytest.approx(2 / 3)
    assert found.unseen is not None and found.unseen.value == pytest.approx(1 / 3)  # only "a dog runs" is new


def test_without_training_captions_nothing_is_said_about_them() -> None:
    found = diversity(["a dog"])
    assert found is not None and found.unseen is None


def test_an_empty_caption_is_counted_and_is_a_caption() -> None:
    found = diversity(["", "a dog"])
    assert found is not None
    assert (found.captions, found.empty, found.length.value) == (2, 1, 1.0)


def test_no_captions_no_figures() -> None:
    assert diversity([]) is None
