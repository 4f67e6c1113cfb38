"""The text of a caption: style, prefix and suffix, and what replaces an unsure caption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from captioner.errors import UsageError
from captioner.writers.wording import Wording
from tests.overlay.handmade_captions import caption


def test_the_best_caption_comes_before_its_alternatives():
    assert Wording().lines(caption("a dog", alternatives=("a cat",))) == ["A dog.", "A cat."]


def test_a_caption_has_its_style_prefix_and_suffix():
    assert Wording("plain", prefix="ohwx, ", suffix=", photo").text(caption("a dog")) == "ohwx, a dog, photo"


@pytest.mark.parametrize("name", ["prefix", "suffix", "unsure_text"])
def test_a_caption_stays_one_line(name: str):
    with pytest.raises(UsageError, match="line breaks"):
        Wording(**{name: "two\nlines"})  # type: ignore[arg-type]


def test_a_caption_below_the_limit_is_unsure_and_one_at_the_limit_is_not():
    wording = Wording(min_confidence=0.5, unsure="say", unsure_text="nothing")
    low, high, none = (replace(caption("a dog"), confidence=value) for value in (0.49, 0.5, None))
    assert [wording.text(one) for one in (low, high, none)] == ["nothing", "A dog.", "A dog."]
    assert [replace(wording, unsure="skip").skips(one) for one in (low, high, none)] == [True, False, False]
    assert [replace(wording, unsure="mark").marks(one) for one in (low, high, none)] == [True, False, False]
