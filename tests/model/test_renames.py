"""Settings under the names of version 0.1 are read under their current names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from captioner.model.renames import SETTINGS, current_setting, current_settings, current_tensors
from captioner.model.settings import ModelSettings

ROOT = Path(__file__).parents[2]


def test_old_settings_get_their_current_names_and_others_stay() -> None:
    old = {"model": {"context": "lstm", "layers": 2, "attention": {"place": "after", "heads": 2}}, "seed": 1}
    assert current_settings(old) == {
        "model": {"grid_encoder": "lstm", "layers": 2, "attention": {"attend": "after", "heads": 2}},
        "seed": 1,
    }
    assert old["model"]["attention"]["place"] == "after"


def test_a_setting_can_move_into_a_section_that_the_file_does_not_have() -> None:
    old = {"training": {"validation": {"beam": 3, "images": 5}}}
    assert current_settings(old) == {"training": {"validation": {"images": 5, "search": {"beam": 3}}}}


def test_current_names_stay() -> None:
    model = ModelSettings.model_validate({"grid_encoder": "lstm", "attention": {"attend": "after"}}).model_dump()
    assert current_settings({"model": model}) == {"model": model}


def test_a_file_with_both_names_of_a_setting_is_refused() -> None:
    both = current_settings({"model": {"context": "lstm", "grid_encoder": "none"}})
    with pytest.raises(ValidationError, match="context\\n  Extra inputs are not permitted"):
        ModelSettings.model_validate(both["model"])


@pytest.mark.parametrize("settings", [{}, {"model": None}, {"model": {"attention": 3}}, {"training": [1]}])
def test_sections_of_another_kind_are_left_for_validation(settings: dict[str, object]) -> None:
    assert current_settings(settings) == settings


def test_no_current_name_is_an_old_one() -> None:
    assert not set(SETTINGS) & set(SETTINGS.values())
    assert current_setting("model.context") == "model.grid_encoder"
    assert current_setting("model.tied") == "model.tied"


def test_tensors_of_a_checkpoint_are_renamed_behind_their_prefix() -> None:
    old = {"network.decoder.context.norm.weight": 1, "decoder.context_out.weight": 2, "rng.torch": 3}
    assert current_tensors(old) == {
        "network.decoder.grid_encoder.norm.weight": 1,
        "decoder.context_out.weight": 2,
        "rng.torch": 3,
    }


@pytest.mark.parametrize("manifest", sorted(ROOT.glob("weights/*/manifest.json")), ids=lambda path: path.parent.name)
def test_the_settings_of_every_shipped_bundle_are_valid(manifest: Path) -> None:
    settings = json.loads(manifest.read_text(encoding="utf-8"))["settings"]
    ModelSettings.model_validate(current_settings(settings)["model"])
