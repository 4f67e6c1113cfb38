"""The alignment is the one that METEOR's jar chooses; each case was recorded from it."""

from __future__ import annotations

import pytest

from captioner.metrics.meteor.align import Match, align


def exact(caption: str, reference: str) -> list[list[Match]]:
    words = caption.split()
    return [
        [Match(j, 1, i, 1, 0) for i, word in enumerate(words) if word == other]
        for j, other in enumerate(reference.split())
    ]


@pytest.mark.parametrize(
    ("caption", "reference", "positions", "chunks"),
    [
        # (word of the reference, word of the caption)
        ("k", "k k", [(1, 0)], 1),
        ("k", "k k k", [(1, 0)], 1),
        ("k", "k w k", [(2, 0)], 1),
        ("k k", "w k", [(1, 0)], 1),
        ("x k", "k k", [(0, 1)], 1),
        ("k k", "k k k", [(0, 0), (1, 1)], 1),
        ("k m", "m m m", [(0, 1)], 1),
        ("a a b a", "a b a a", [(0, 1), (1, 2), (2, 3), (3, 0)], 2),
        ("x", "y", [], 0),
        ("a b c", "a b c", [(0, 0), (1, 1), (2, 2)], 1),
        ("a b c", "c b a", [(0, 2), (1, 1), (2, 0)], 3),
    ],
)
def test_ties_are_broken_as_in_the_jar(
    caption: str, reference: str, positions: list[tuple[int, int]], chunks: int
) -> None:
    matches, counted = align(exact(caption, reference), len(caption.split()))
    assert ([(m.ref, m.start) for m in matches], counted) == (positions, chunks)


def test_a_single_pair_that_is_synonym_and_paraphrase_is_not_aligned() -> None:
    """The jar leaves "kid" and "child", synonyms and paraphrases of each other, unaligned when alone."""
    rivals = [Match(0, 1, 0, 1, 2), Match(0, 1, 0, 1, 3)]
    assert align([rivals], 1) == ([], 0)


def test_the_same_pair_is_aligned_next_to_another_match() -> None:
    rivals = [Match(1, 1, 1, 1, 2), Match(1, 1, 1, 1, 3)]
    first = Match(0, 1, 0, 1, 0)
    assert align([[first], rivals], 2) == ([first, rivals[0]], 1)


def test_a_long_paraphrase_wins_over_the_exact_word_in_it() -> None:
    """Recorded: "zz at a rapid rate" against "at fast" aligns "at a rapid rate" with "fast"."""
    exact_at = Match(0, 1, 1, 1, 0)
    fast = [Match(1, 1, start, length, 3) for start, length in [(3, 1), (1, 3), (1, 4), (3, 1)]]
    assert align([[exact_at], fast], 5) == ([fast[2]], 1)
