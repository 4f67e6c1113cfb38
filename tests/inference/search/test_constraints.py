"""Constraints against enumeration: what is found meets them, and is the best that does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioner.errors import UsageError
from captioner.inference.search import SearchOptions, search
from tests.inference.search.table_backend import TableBackend, images, random_table, sentences, text

WORDS = ("cat", "dog", "kitten")


def best(toy: TableBackend, image: int, longest: int, meets) -> tuple[str, ...]:
    scores = {w: s / (len(w) + 1) for w, s in sentences(toy, image, longest).items() if w and meets(w)}
    return max(scores, key=lambda w: scores[w])


def repeats(words: tuple[str, ...], n: int) -> bool:
    grams = [words[i : i + n] for i in range(len(words) - n + 1)]
    return len(set(grams)) < len(grams)


@pytest.mark.parametrize(
    ("options", "meets"),
    [
        ({"forbidden": ("cat",)}, lambda w: "cat" not in w),
        ({"required": (("cat",),)}, lambda w: "cat" in w),
        ({"required": (("cat", "kitten"), ("dog",))}, lambda w: {"cat", "kitten"} & set(w) and "dog" in w),
        ({"required": (("cat", "dog"), ("cat", "kitten"))}, lambda w: "cat" in w or {"dog", "kitten"} <= set(w)),
        ({"no_repeat": 1}, lambda w: not repeats(w, 1)),
        ({"no_repeat": 2}, lambda w: not repeats(w, 2)),
        ({"min_length": 3}, lambda w: len(w) >= 3),
        ({"min_length": 2, "no_repeat": 1, "forbidden": ("dog",)}, lambda w: sorted(w) == ["cat", "kitten"]),
    ],
)  # fmt: skip
def test_a_wide_beam_finds_the_best_caption_that_satisfies_the_constraints(options, meets):
    toy = TableBackend(WORDS, random_table(WORDS, seed=7))
    found = search(toy, images(*range(8)), SearchOptions(beam=300, max_length=4, **options))
    assert [text(toy, hypotheses[0]) for hypotheses in found] == [best(toy, i, 4, meets) for i in range(8)]


@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 4),
    required=st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=2), max_size=3),
    no_repeat=st.integers(0, 3),
    min_length=st.integers(0, 4),
)
@settings(max_examples=60, deadline=None)
def test_a_narrow_beam_satisfies_the_constraints_too(seed, beam, required, no_repeat, min_length):
    toy = TableBackend(WORDS, random_table(WORDS, seed=seed, sharp=4))
    constraints = tuple(tuple(words) for words in required)
    options = SearchOptions(beam=beam, max_length=6, required=constraints, no_repeat=no_repeat, min_length=min_length)
    for hypotheses in search(toy, images(0, 1, 2), options):
        if no_repeat != 1:  # three words that don't repeat may leave no way to meet the rest
            assert hypotheses
        for found in hypotheses:
            words = text(toy, found)
            assert all(set(words) & set(each) for each in constraints)
            assert not (no_repeat and repeats(words, no_repeat))
            assert not found.ended or len(words) >= min_length


def test_a_rare_required_word_is_kept_by_a_narrow_beam():
    # "dog" never comes near the best 2 of 3 at any step: only a beam of its own keeps it.
    toy = TableBackend(WORDS, lambda i, p: {"cat": 0.5, "kitten": 0.3, "<end>": 0.19, "dog": 0.01})
    (hypotheses,) = search(toy, images(0), SearchOptions(beam=2, max_length=5, required=(("dog",),)))
    assert text(toy, hypotheses[0]).count("dog") == 1


def test_required_words_may_fill_the_caption_up_to_the_length_limit():
    toy = TableBackend(WORDS, lambda i, p: {"cat": 0.9, "<end>": 0.09, "dog": 0.005, "kitten": 0.005})
    options = SearchOptions(beam=1, max_length=3, required=(("dog",), ("kitten",), ("cat",)))
    (hypotheses,) = search(toy, images(0), options)
    assert sorted(text(toy, hypotheses[0])) == ["cat", "dog", "kitten"]


def test_unk_occurs_only_if_it_is_allowed():
    toy = TableBackend(WORDS, lambda i, p: {"<unk>": 0.9, "cat": 0.1} if not p else {"<end>": 1.0})
    assert text(toy, search(toy, images(0))[0][0]) == ("cat",)
    assert text(toy, search(toy, images(0), SearchOptions(allow_unknown=True))[0][0]) == ("<unk>",)


def test_an_unknown_required_word_is_refused_with_similar_words():
    toy = TableBackend(WORDS, random_table(WORDS))
    with pytest.raises(UsageError, match=r"'kiten'.*kitten"):
        search(toy, images(0), SearchOptions(required=(("kiten",),)))


def test_forbidding_an_unknown_word_changes_nothing():
    toy = TableBackend(WORDS, random_table(WORDS))
    plain = search(toy, images(0))
    assert search(toy, images(0), SearchOptions(forbidden=("zebra",)))[0][0].words == plain[0][0].words


def test_a_word_cannot_be_required_and_forbidden():
    toy = TableBackend(WORDS, random_table(WORDS))
    with pytest.raises(UsageError, match="cat is both required and forbidden"):
        search(toy, images(0), SearchOptions(required=(("cat",),), forbidden=("cat",)))


def test_more_required_words_than_fit_are_refused():
    toy = TableBackend(WORDS, random_table(WORDS))
    with pytest.raises(UsageError, match="do not fit into 2 words"):
        search(toy, images(0), SearchOptions(required=(("cat",), ("dog",), ("kitten",)), max_length=2))


def test_one_word_may_meet_several_requirements_at_the_length_limit():
    toy = TableBackend(WORDS, lambda i, p: {"dog": 0.9, "kitten": 0.09, "cat": 0.005, "<end>": 0.005})
    options = SearchOptions(beam=1, max_length=1, required=(("cat", "dog"), ("cat", "kitten"), ("cat",)))
    assert text(toy, search(toy, images(0), options)[0][0]) == ("cat",)


def test_a_caption_without_any_allowed_next_word_is_cut():
    # Every word but the end is forbidden, and the end may not come first.
    toy = TableBackend(WORDS, lambda i, p: {"cat": 0.5, "<end>": 0.5})
    for sample in (False, True):
        (hypotheses,) = search(toy, images(0), SearchOptions(forbidden=WORDS, sample=sample))
        assert hypotheses[0].words == () and not hypotheses[0].ended
        assert hypotheses[0].alphas.shape == (0, 4)


@pytest.mark.parametrize("penalty", [1.0, 2.5])
def test_a_repeated_word_gets_the_penalty_unless_it_is_recurring(penalty):
    toy = TableBackend(WORDS, random_table(WORDS, seed=7), recurring=frozenset({"dog"}))
    options = SearchOptions(beam=300, n_best=300, max_length=4, repeat_penalty=penalty)
    changed = 0
    for image, hypotheses in enumerate(search(toy, images(*range(8)), options)):
        true = sentences(toy, image, 4)
        # Each repetition of a word other than "dog" costs the penalty.
        cost = {w: penalty * sum(w[:i].count(w[i]) > 0 for i in range(len(w)) if w[i] != "dog") for w in true}
        scores = {w: (true[w] - cost[w]) / (len(w) + 1) for w in true if w}
        ended = [found for found in hypotheses if found.ended]
        assert any(text(toy, found).count("cat") == 3 for found in ended)  # which pays twice, not three times
        for found in ended:
            words = text(toy, found)
            assert found.score == pytest.approx(scores[words], abs=1e-5)
            # The reported log-probabilities are the model's, without the penalty.
            assert found.log_probabilities.sum() == pytest.approx(true[words], abs=1e-4)
        assert text(toy, hypotheses[0]) == max(scores, key=lambda w: scores[w])
        changed += text(toy, hypotheses[0]) != best(toy, image, 4, bool)
    assert changed


def test_samples_repeat_words_less_often_with_a_penalty():
    toy = TableBackend(WORDS, random_table(WORDS, seed=7))

    def repeated(penalty: float) -> int:
        options = SearchOptions(sample=True, n_best=40, min_length=3, max_length=3, repeat_penalty=penalty)
        return sum(
            repeats(text(toy, each), 1) for hypotheses in search(toy, images(0, 1, 2), options) for each in hypotheses
        )

    assert repeated(20.0) == 0 < repeated(1.0) < repeated(0.0)


@pytest.mark.parametrize("penalty", [-1.0, 100.5, 1e39, float("inf"), float("nan")])
def test_a_penalty_must_be_within_its_limits(penalty):
    with pytest.raises(UsageError, match=r"repeat_penalty .*(too small|too large|finite)"):
        SearchOptions(repeat_penalty=penalty)
