"""A wrong name is answered with the right ones and the nearest of them."""

from __future__ import annotations

import pytest

from captioner.errors import CaptionerError, UsageError, nearest, unknown

ENCODERS = ["resnet50", "resnet101", "vgg16", "lite0"]


def test_an_unknown_name_is_quoted_with_the_nearest_and_all_known_ones() -> None:
    message = str(unknown("encoder", "resnet5o", ENCODERS))
    assert message == ("unknown encoder 'resnet5o'. Did you mean 'resnet50'? Known: resnet50, resnet101, vgg16, lite0.")


def test_a_name_like_none_of_them_gets_no_suggestion() -> None:
    message = str(unknown("encoder", "zzzz", ENCODERS))
    assert "Did you mean" not in message
    assert "resnet101" in message


def test_choices_may_be_read_once() -> None:
    assert "vgg16" in str(unknown("encoder", "vgg19", (name for name in ENCODERS)))


def test_the_nearest_come_best_first_and_no_more_than_asked_for() -> None:
    assert nearest("resnet10", ENCODERS, count=2) == ["resnet101", "resnet50"]
    assert nearest("resnet10", ENCODERS) == ["resnet101"]


def test_a_wrong_call_is_caught_as_the_one_error_of_the_package() -> None:
    with pytest.raises(CaptionerError):
        raise unknown("score", "blue", ["bleu"])
    assert isinstance(unknown("score", "blue", ["bleu"]), UsageError)
