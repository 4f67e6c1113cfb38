"""Sampling: the drawn words follow the model's distribution, and the seed and the picture decide the draws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from captioner.errors import UsageError
from captioner.inference.search import SearchOptions, search
from tests.inference.search.table_backend import TableBackend, attention, images, random_table, sentences, text

ABC = ("a", "b", "c")
FIRST = {"a": 0.5, "b": 0.3, "c": 0.2}


def first_words(**options) -> dict[str, float]:
    toy = TableBackend(ABC, lambda i, p: FIRST if not p else {"<end>": 1.0})
    (hypotheses,) = search(toy, images(0), SearchOptions(sample=True, n_best=5000, **options))
    counts = Counter(text(toy, h)[0] for h in hypotheses)
    return {word: counts[word] / len(hypotheses) for word in ABC}


@pytest.mark.parametrize(
    ("options", "truth"),
    [
        ({}, FIRST),
        ({"temperature": 0.5}, {"a": 0.25 / 0.38, "b": 0.09 / 0.38, "c": 0.04 / 0.38}),
        ({"temperature": 5e-324}, {"a": 1, "b": 0, "c": 0}),
        ({"top_k": 2}, {"a": 0.625, "b": 0.375, "c": 0}),
        ({"top_p": 0.6}, {"a": 0.625, "b": 0.375, "c": 0}),
        ({"top_p": 0.5}, {"a": 1, "b": 0, "c": 0}),
        ({"top_k": 1}, {"a": 1, "b": 0, "c": 0}),
        ({"forbidden": ("a",)}, {"a": 0, "b": 0.6, "c": 0.4}),
    ],
)
def test_words_are_sampled_from_the_distribution_that_the_options_define(options, truth):
    assert first_words(**options) == pytest.approx(truth, abs=0.03)


def test_captions_are_sampled_with_the_models_probabilities():
    toy = TableBackend(("a", "b"), random_table(("a", "b"), sharp=1))
    (hypotheses,) = search(toy, images(0), SearchOptions(sample=True, n_best=5000, min_length=0, max_length=6))
    counts = Counter(text(toy, h) for h in hypotheses if h.ended)
    for words, total in sentences(toy, 0, 2).items():
        assert counts[words] / len(hypotheses) == pytest.approx(np.exp(total), abs=0.025)


def test_the_temperature_does_not_change_the_reported_log_probability():
    toy = TableBackend(ABC, lambda i, p: FIRST if not p else {"<end>": 1.0})
    (hypotheses,) = search(toy, images(0), SearchOptions(sample=True, temperature=0.2, top_k=2, n_best=20))
    for found in hypotheses:
        assert found.log_probabilities == pytest.approx([np.log(FIRST[text(toy, found)[0]]), 0])


def test_the_seed_decides_the_samples():
    toy = TableBackend(ABC, random_table(ABC, sharp=0.5))
    options = [SearchOptions(sample=True, seed=seed, max_length=9) for seed in (1, 1, 2)]
    one, again, other = ([h.words for (h,) in search(toy, images(*range(9)), o)] for o in options)
    assert one == again != other


def test_the_samples_of_a_picture_do_not_depend_on_the_batch():
    toy = TableBackend(ABC, random_table(ABC, sharp=0.5))
    options = SearchOptions(sample=True, n_best=3, max_length=9)
    keys = np.array([70, 71, 72, 73], np.uint32)
    together = search(toy, images(5, 6, 7, 8, keys=keys), options)
    backwards = search(toy, images(8, 7, 6, 5, keys=keys[::-1]), options)[::-1]
    alone = [search(toy, images(n, keys=keys[i : i + 1]), options)[0] for i, n in enumerate((5, 6, 7, 8))]
    for other in (backwards, alone):
        assert [[h.words for h in hypotheses] for hypotheses in other] == [
            [h.words for h in hypotheses] for hypotheses in together
        ]


def test_every_word_has_the_map_of_its_step():
    toy = TableBackend(ABC, random_table(ABC, sharp=0.5))
    for image, hypotheses in enumerate(search(toy, images(0, 1), SearchOptions(sample=True, n_best=4))):
        for found in hypotheses:
            words = text(toy, found)
            assert len(found.alphas) == len(words) + found.ended
            for at, alpha in enumerate(found.alphas):
                assert np.array_equal(alpha, attention(image, words[:at])[0])


def test_required_words_and_sampling_exclude_each_other():
    with pytest.raises(UsageError, match="required words need beam search"):
        SearchOptions(sample=True, required=(("a",),))
