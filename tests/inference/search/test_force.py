"""Forced decoding: given captions get the model's own probabilities and maps."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.inference.search import SearchOptions, force, search
from tests.inference.search.table_backend import TableBackend, attention, images, random_table, sentences

ABC = ("a", "b", "c")


def test_forced_captions_get_the_models_probability_and_maps():
    toy = TableBackend(ABC, random_table(ABC))
    captions: list[list[tuple[str, ...]]] = [[("a", "b"), ("c",)], [("b", "b", "a")], []]
    numbers = [[[toy.vocabulary.index[w] for w in words] for words in of_image] for of_image in captions]
    forced = force(toy, images(0, 1, 2), numbers)
    assert [len(hypotheses) for hypotheses in forced] == [2, 1, 0]
    for image, hypotheses in enumerate(forced):
        totals = sentences(toy, image, 3)
        for words, found in zip(captions[image], hypotheses, strict=True):
            assert found.log_probabilities.sum() == pytest.approx(totals[words], rel=1e-5)
            assert found.score == pytest.approx(totals[words] / (len(words) + 1), rel=1e-5)
            assert len(found.alphas) == len(found.gates) == len(words) + 1
            for at, alpha in enumerate(found.alphas):
                assert np.array_equal(alpha, attention(image, words[:at])[0])


def test_forcing_a_found_caption_gives_its_probabilities_and_maps():
    toy = TableBackend(ABC, random_table(ABC, seed=9), hard=True)
    options = SearchOptions(beam=4, n_best=4, length_power=0.7)
    found = search(toy, images(0, 1, 2), options)
    forced = force(toy, images(0, 1, 2), [[h.words for h in hypotheses if h.ended] for hypotheses in found], options)
    for hypotheses, others in zip(found, forced, strict=True):
        for a, b in zip([h for h in hypotheses if h.ended], others, strict=True):
            assert a.score == pytest.approx(b.score, rel=1e-5)
            assert a.cells is not None and b.cells is not None
            assert np.array_equal(a.alphas, b.alphas) and np.array_equal(a.cells, b.cells)


def test_the_number_of_caption_lists_must_be_the_number_of_images():
    with pytest.raises(ValueError, match="1 lists of captions for 2 images"):
        force(TableBackend(ABC, random_table(ABC)), images(0, 1), [[[4]]])
