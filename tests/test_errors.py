"""The error for an unknown name lists the known names and suggests the nearest."""

from __future__ import annotations

import pytest

from captioner.errors import CaptionerError, UsageError, nearest, unknown

ENCODERS = ["resnet50", "resnet101", "vgg16", "lite0"]


def test_the_message_has_the_unknown_name_the_nearest_and_all_known_ones() -> None:
    message = str(unknown("encoder", "resnet5o", ENCODERS))
    assert message == ("unknown encoder 'resnet5o'. Did you mean 'resnet50'? Known: resnet50, resnet101, vgg16, lite0.")


def test_a_name_unlike_all_others_gets_no_suggestion() -> None:
    message = str(unknown("encoder", "zzzz", ENCODERS))
    assert "Did you mean" not in message
    assert "resnet101" in message


def test_known_names_may_be_an_iterator() -> None:
    assert "vgg16" in str(unknown("encoder", "vgg19", (name for name in ENCODERS)))


def test_nearest_names_are_sorted_and_limited_to_the_count() -> None:
    assert nearest("resnet10", ENCODERS, count=2) == ["resnet101", "resnet50"]
    assert nearest("resnet10", ENCODERS) == ["resnet101"]


def test_the_error_is_a_usage_error_and_a_captioner_error() -> None:
    with pytest.raises(CaptionerError):
        raise unknown("score", "blue", ["bleu"])
    assert isinstance(unknown("score", "blue", ["bleu"]), UsageError)
