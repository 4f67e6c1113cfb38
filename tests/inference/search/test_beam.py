"""Beam search against hand-solved models, enumeration, and a greedy loop written here."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.errors import CaptionerError, UsageError
from captioner.inference.search import SearchOptions, search
from captioner.inference.search.beam import largest_columns
from tests.inference.search.table_backend import TableBackend, attention, images, random_table, sentences, text

ABC = ("a", "b", "c")


def greedy(toy: TableBackend, image: int, longest: int) -> tuple[str, ...]:
    words: tuple[str, ...] = ()
    while len(words) < longest:
        table = dict(toy.table(image, words))
        if not words:
            table.pop("<end>", None)  # a caption has at least one word
        best = max(table, key=lambda word: table[word])
        if best == "<end>":
            break
        words += (best,)
    return words


def test_beam_of_one_equals_greedy():
    toy = TableBackend(ABC, random_table(ABC))
    found = search(toy, images(*range(30)), SearchOptions(beam=1, max_length=6))
    assert [text(toy, best) for (best,) in found] == [greedy(toy, i, 6) for i in range(30)]


def test_beam_search_finds_the_caption_that_greedy_search_misses():
    # p(a b) = 0.4 * 0.9 = 0.36 and p(c) = 0.6 * 0.3 = 0.18, but greedy takes c at 0.6 first.
    tree = {
        (): {"c": 0.6, "a": 0.4},
        ("c",): {"<end>": 0.3, "a": 0.25, "b": 0.25, "c": 0.2},
        ("a",): {"b": 0.9, "<end>": 0.1},
        ("a", "b"): {"<end>": 1.0},
    }
    toy = TableBackend(ABC, lambda _, prefix: tree.get(prefix, {"<end>": 0.5, "a": 0.5}))
    options = SearchOptions(beam=1, length_power=0, max_length=4)
    assert text(toy, search(toy, images(0), options)[0][0]) == ("c",)
    best = search(toy, images(0), SearchOptions(beam=2, length_power=0, max_length=4))[0][0]
    assert text(toy, best) == ("a", "b")
    assert best.score == pytest.approx(np.log(0.36))
    assert best.ended
    assert best.log_probabilities == pytest.approx(np.log([0.4, 0.9, 1.0]))


def test_length_normalization_decides_between_a_short_and_a_long_caption():
    # sums: log 0.5 for "a", log 0.45 for "b c c"; per word: log(0.5) / 2 against log(0.45) / 4.
    tree = {(): {"a": 0.5, "b": 0.5}, ("a",): {"<end>": 1.0}, ("b",): {"c": 0.9, "<end>": 0.1}}
    tree |= {("b", "c"): {"c": 1.0}, ("b", "c", "c"): {"<end>": 1.0}}
    toy = TableBackend(ABC, lambda _, prefix: tree[prefix])
    by_sum = search(toy, images(0), SearchOptions(beam=3, length_power=0, max_length=5))[0][0]
    by_mean = search(toy, images(0), SearchOptions(beam=3, length_power=1, max_length=5))[0][0]
    assert text(toy, by_sum) == ("a",)
    assert text(toy, by_mean) == ("b", "c", "c")
    assert by_mean.score == pytest.approx(np.log(0.45) / 4)


@pytest.mark.parametrize("power", [0.0, 0.7, 1.0])
def test_beam_of_the_whole_tree_equals_enumeration(power):
    toy = TableBackend(ABC, random_table(ABC, seed=3))
    longest, n = 4, 7
    options = SearchOptions(beam=500, n_best=n, length_power=power, max_length=longest, min_length=0)
    for image, found in enumerate(search(toy, images(0, 1, 2, 3), options)):
        scores = {w: s / (len(w) + 1) ** power for w, s in sentences(toy, image, longest).items()}
        truth = sorted(scores, key=lambda w: -scores[w])[:n]
        assert [text(toy, h) for h in found] == truth
        assert [h.score for h in found] == pytest.approx([scores[w] for w in truth], rel=1e-5)


@pytest.mark.parametrize("n_best", [1, 3])
def test_early_exit_saves_steps_and_changes_no_result(monkeypatch, n_best):
    import captioner.inference.search.beam as beam

    toy = TableBackend(ABC, random_table(ABC, seed=5, sharp=3))
    options = SearchOptions(beam=4, n_best=n_best, length_power=0.5, max_length=12)
    early = search(toy, images(*range(20)), options)
    steps = sum(b * k for b, k in toy.computed)
    toy.computed.clear()
    monkeypatch.setattr(beam._Beam, "_decided", lambda self, totals: np.zeros(len(totals), bool))
    late = search(toy, images(*range(20)), options)
    assert [[text(toy, h) for h in hypotheses] for hypotheses in early] == [
        [text(toy, h) for h in hypotheses] for hypotheses in late
    ]
    assert steps < sum(b * k for b, k in toy.computed)


def test_a_batch_equals_its_images_alone():
    toy = TableBackend(ABC, random_table(ABC, seed=1), hard=True)
    options = SearchOptions(beam=3, n_best=3, max_length=8)
    together = search(toy, images(*range(12)), options)
    for image in range(12):
        (alone,) = search(toy, images(image), options)
        assert [h.words for h in together[image]] == [h.words for h in alone]
        for a, b in zip(together[image], alone, strict=True):
            assert np.array_equal(a.alphas, b.alphas)
            assert a.cells is not None and b.cells is not None and np.array_equal(a.cells, b.cells)


def test_every_word_and_the_end_have_the_map_and_gate_of_their_step():
    toy = TableBackend(ABC, random_table(ABC, seed=2), hard=True)
    for image, hypotheses in enumerate(search(toy, images(*range(9)), SearchOptions(beam=4, n_best=4))):
        for found in hypotheses:
            words = text(toy, found)
            assert len(found.alphas) == len(words) + found.ended
            for at, (alpha, gate) in enumerate(zip(found.alphas, found.gates, strict=True)):
                true_alpha, true_gate = attention(image, words[:at])
                assert np.array_equal(alpha, true_alpha)
                assert gate == np.float32(true_gate)
                assert found.cells[at] == true_alpha.argmax()
                word = [*words, "<end>"][at]
                truth = np.log(toy.table(image, words[:at])[word])
                assert found.log_probabilities[at] == pytest.approx(truth, rel=1e-5)


def test_finished_images_are_removed_from_the_batch():
    # Image 0 says one word; image 1 goes on to the limit.
    toy = TableBackend(ABC, lambda i, p: {"<end>": 1.0} if i == 0 and p else {"a": 0.9, "b": 0.1})
    found = search(toy, images(0, 1), SearchOptions(beam=2, max_length=6))
    assert [b for b, _ in toy.computed] == [2, 2, 1, 1, 1, 1, 1]
    assert text(toy, found[0][0]) == ("a",)
    assert text(toy, found[1][0]) == ("a",) * 6


def test_captions_cut_by_the_length_limit_come_after_complete_ones():
    toy = TableBackend(ABC, lambda i, p: {"a": 0.6, "b": 0.3, "<end>": 0.1 if len(p) == 2 else 0.0})
    hypotheses = search(toy, images(0), SearchOptions(beam=9, n_best=9, max_length=3))[0]
    assert hypotheses[0].ended
    assert [h.ended for h in hypotheses] == sorted((h.ended for h in hypotheses), reverse=True)
    assert {len(h.words) for h in hypotheses if not h.ended} == {3}
    assert all(len(h.alphas) == 3 for h in hypotheses if not h.ended)


def test_diverse_groups_begin_with_different_words():
    table = random_table(ABC, seed=4, sharp=1)
    toy = TableBackend(ABC, lambda i, p: {"a": 0.8, "b": 0.1, "c": 0.1} if not p else table(i, p))
    plain = search(toy, images(*range(10)), SearchOptions(beam=3, n_best=3, max_length=5))
    diverse = search(toy, images(*range(10)), SearchOptions(beam=3, n_best=3, max_length=5, groups=3, diversity=10))
    first = [{text(toy, h)[0] for h in hypotheses} for hypotheses in diverse]
    assert all(words == set(ABC) for words in first)
    assert sum(len({text(toy, h)[0] for h in hypotheses}) for hypotheses in plain) < 30


def test_diverse_search_without_penalty_returns_every_caption_once():
    toy = TableBackend(ABC, random_table(ABC, seed=4))
    (hypotheses,) = search(toy, images(0), SearchOptions(beam=3, n_best=3, max_length=5, groups=3, diversity=0))
    assert [text(toy, h) for h in hypotheses] == [greedy(toy, 0, 5)]


@pytest.mark.parametrize("beam", [1, 3, 20])
def test_a_uniform_model_gives_captions_within_the_length_limit(beam):
    flat = dict.fromkeys(("<pad>", "<start>", "<unk>", *ABC, "<end>"), 1 / 7)
    toy = TableBackend(ABC, lambda i, p: flat)
    for hypotheses in search(toy, images(0, 1, 2), SearchOptions(beam=beam, n_best=beam, max_length=7)):
        assert 1 <= len(hypotheses) <= beam
        assert all(1 <= len(h.words) <= 7 and min(h.words) > 3 for h in hypotheses)
        assert len({(h.words, h.ended) for h in hypotheses}) == len(hypotheses)


def test_a_model_that_never_ends_is_cut():
    toy = TableBackend(ABC, lambda i, p: {"a": 1.0})
    (best,) = search(toy, images(0), SearchOptions(max_length=5))[0]
    assert text(toy, best) == ("a",) * 5 and not best.ended


def test_no_image_gives_no_caption():
    assert search(TableBackend(ABC, random_table(ABC)), images()) == []


def test_nan_in_the_models_output_is_reported():
    toy = TableBackend(ABC, lambda i, p: {"a": float("nan")})
    with pytest.raises(CaptionerError, match="not a number"):
        search(toy, images(0))


def test_largest_agrees_with_a_full_sort():
    table = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    kept = table.copy()
    for k in (1, 3, 8, 9, 40):
        assert np.array_equal(largest_columns(table, k), np.argsort(-table, axis=1)[:, :k])
        assert np.array_equal(table, kept)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"beam": 0}, "beam 0 is too small"),
        ({"n_best": 4}, "needs a beam of 4"),
        ({"beam": 4, "groups": 3}, "3 equal groups"),
        ({"min_length": 9, "max_length": 5}, "at least 9 and at most 5"),
        ({"sample": True, "temperature": 0}, "temperature"),
        ({"top_p": 0}, "top_p"),
    ],
)
def test_a_wrong_option_is_named(wrong, said):
    with pytest.raises(UsageError, match=said):
        SearchOptions(**wrong)
