"""Settings of a model are validated before it is built."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from captioner.model.settings import EncoderSettings, ModelSettings


def test_an_output_layer_without_inputs_is_refused():
    with pytest.raises(ValidationError, match="at least one of output_word, output_hidden, output_context"):
        ModelSettings(output_word=False, output_hidden=False, output_context=False)


@pytest.mark.parametrize("settings", [{"stride": 8}, {"size": 16}, {"tails": "stage6"}])
def test_encoder_settings_out_of_range_or_unknown_are_refused(settings):
    with pytest.raises(ValidationError, match=next(iter(settings))):
        EncoderSettings(**settings)


@pytest.mark.parametrize(
    "settings",
    [{"layers": 0}, {"dropout": 1.0}, {"attention": {"temperature": 0}}, {"attention": {"mode": "medium"}}],
    ids=str,
)
def test_model_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValidationError):
        ModelSettings.model_validate(settings)


def test_settings_are_frozen_after_validation():
    with pytest.raises(ValidationError, match="frozen"):
        EncoderSettings().size = 128  # type: ignore[misc]
