import dataclasses

import numpy as np
import pytest
from PIL import Image

from captioner import Captioner
from captioner.errors import CaptionerError
from captioner.evidence.word_evidence import ALTERNATIVES, with_alternatives, with_evidence
from captioner.overlay import arrays, view_of
from captioner.text.nouns import is_content_word

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 120, 3)).astype(np.uint8))


@pytest.fixture(scope="module")
def captioner():
    return Captioner.load(threads=1)


@pytest.fixture(scope="module")
def caption(captioner):
    return captioner(PICTURE, keep_pictures=True, n_best=2)


def test_the_likeliest_words_include_the_chosen_one_with_its_probability(captioner, caption):
    named = with_alternatives(captioner, caption)
    for one in (named, *named.alternatives):
        for word in one.words:
            chances = [p for _, p in word.alternatives]
            assert len(chances) == ALTERNATIVES and chances == sorted(chances, reverse=True)
            likeliest = dict(word.alternatives)
            if word.text in likeliest:
                assert likeliest[word.text] == pytest.approx(word.probability, rel=1e-3)
            else:
                assert word.probability <= chances[-1]
    assert named.text == caption.text


def test_content_words_have_evidence_and_the_log_probability_of_the_search(captioner, caption):
    examined = with_evidence(captioner, caption)
    for word in examined.words:
        assert (word.evidence is not None) == is_content_word(word.text)
        if word.evidence is not None:
            assert word.evidence.seen == pytest.approx(word.log_probability, abs=1e-3)
            assert word.evidence.relied.shape == word.alpha.shape
            assert 0 <= word.evidence.habit <= 1


def test_evidence_is_in_the_arrays_and_in_the_view(captioner, caption):
    examined = with_evidence(captioner, caption, curves=True)
    named = arrays(examined)
    measured = [word.evidence is not None for word in examined.words]
    assert (~np.isnan(named["habit"])).tolist() == measured
    assert named["relied"].shape == named["alpha"].shape
    assert named["deletion"].shape == (len(measured), len(named["curve_shares"]))
    assert named["likeliest_words"].shape == (len(measured), ALTERNATIVES)
    words = view_of(examined)[0]["words"]
    assert ["evidence" in word for word in words] == measured
    assert all("curves" in word["evidence"] for word in words if "evidence" in word)
    dictionary = examined.to_dict()["words"][measured.index(True)]
    assert set(dictionary["evidence"]) == {"seen", "blurred", "habit", "correlation", "relied", "curves"}


def test_a_caption_without_a_picture_or_without_content_words(captioner, caption):
    with pytest.raises(CaptionerError, match="no picture"):
        with_evidence(captioner, dataclasses.replace(caption, picture=None))
    empty = dataclasses.replace(caption, words=(), alternatives=())
    assert with_evidence(captioner, empty).words == ()
