"""Configs: every file loads, errors say what to do, every setting is documented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from captioner.errors import UsageError
from captioner.options import SearchOptions
from captioner.train import config_file as configs
from captioner.train.config import Config, TrainingSettings
from captioner.train.config_file import dump, fields, load, parse

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_config_loads_and_is_the_same_after_writing(path: Path) -> None:
    config = load(path)
    assert parse(yaml.safe_load(dump(config)), "the dump") == config
    assert config.name.replace("-", "_") == path.stem


def test_presets_have_the_attention_mode_of_their_name() -> None:
    named = {path.stem: load(path) for path in FILES}
    assert {"default", "shapes", "paper_soft", "paper_hard"} <= set(named)
    for soft, hard in (("paper_soft", "paper_hard"), ("default", "hard"), ("flickr8k_soft", "flickr8k_hard")):
        assert named[soft].model.attention.mode == "soft"
        assert named[hard].model.attention.mode == "hard"


def test_the_configs_of_the_paper_have_its_settings() -> None:
    for kind in ("soft", "hard"):
        config = load(ROOT / f"configs/paper_{kind}.yaml")
        assert (config.encoder.name, config.encoder.size, config.encoder.annotations) == ("vgg19", 224, ("conv5",))
        assert config.encoder.tail is None  # not fine-tuned
        assert config.training.images * config.training.captions == 64
        assert config.training.optimizer.name == "adam"
        assert config.training.validation.score == "BLEU-4"
        assert config.training.validation.patience is not None  # early stopping


def test_a_config_has_no_doubly_stochastic_term_by_default_as_the_shipped_models_have_none() -> None:
    shipped = [
        load(ROOT / "configs" / f"{name}.yaml") for name in ("default", "hard", "flickr8k_soft", "flickr8k_hard")
    ]
    assert {config.training.doubly_stochastic for config in shipped} == {TrainingSettings().doubly_stochastic} == {0.0}


DEFAULT = ROOT / "configs" / "coco_soft.yaml"


def test_set_changes_nested_settings_list_items_and_absent_sections() -> None:
    config = load(
        DEFAULT,
        [
            "training.optimizer.learning_rate=5e-5",
            "data.train.0.split=train",
            "training.scst.start_epoch=3",
            "encoder.annotations=[stage7]",
            "training.ema=null",
            "name=other",
        ],
    )
    assert config.training.optimizer.learning_rate == 5e-5
    assert config.data.train[0].split == "train"
    assert config.training.scst is not None
    assert config.training.scst.start_epoch == 3
    assert config.encoder.annotations == ("stage7",)
    assert config.training.ema is None
    assert config.name == "other"


def test_set_can_open_a_section_that_is_null(tmp_path: Path) -> None:
    resolved = tmp_path / "config.yaml"
    resolved.write_text(dump(load(DEFAULT)))
    assert "scst: null" in resolved.read_text()
    scst = load(resolved, ["training.scst.start_epoch=2"]).training.scst
    assert scst is not None
    assert scst.start_epoch == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.epoch=3", "unknown key 'training.epoch'. Did you mean 'epochs'?"),
        ("trainin.epochs=3", "unknown key 'trainin'. Did you mean 'training'?"),
        ("training.scst.sample=3", "unknown key 'training.scst.sample'. Did you mean 'samples'?"),
        ("data.train.0.imagez=x", "unknown key 'data.train.0.imagez'. Did you mean 'images'?"),
        ("training.learning_rate=1", "Did you mean 'training.optimizer.learning_rate'?"),
        ("training.epochs=three", "training.epochs: input should be a valid integer"),
        ("training.optimizer.name=sgd", "training.optimizer.name: input should be 'adam', 'adamw' or 'rmsprop'"),
        ("training.ema=2", "training.ema: input should be less than 1, got 2"),
        ("training.captions=0", "training.captions: input should be greater than or equal to 1, got 0"),
        ("encoder.annotations=head", "encoder.annotations: input should be a valid tuple, got 'head'"),
        ("training.scst={start_epoch: 0, samples: 1}", "the leave_one_out baseline needs samples >= 2"),
        ("training.grounding={final_epoch: 2}", "final_epoch needs final_weight"),
        (
            "training={cell_categories: {}, tune: {end_epoch: 0}}",
            "training.cell_categories clashes with training.tune.end_epoch=0",
        ),
        (
            "training.scst={start_epoch: 0, reward: {cider: 0}}",
            "at least one of cider, bleu and meteor must be above 0",
        ),
        (
            "training.scst={start_epoch: 0, reward: bleu}",
            "needs settings below it (cider, bleu, meteor, objects, invented, repeats), got 'bleu'",
        ),
        ("training.scst={start_epoch: 0, reward: {bleu: .inf}}", "reward.bleu: input should be a finite number"),
        ("training.scst.samples=3", "training.scst.start_epoch is missing"),
        ("data.train.4.split=val", "'4' is not an index of this list, which has 0 to 0"),
        ("data.train.first.split=val", "'first' is not an index of this list"),
        ("training.epochs.more=1", "'epochs' is a value, not a section"),
        ("training.epochs", "--set takes key=value, such as training.epochs=3, not 'training.epochs'"),
        ("training.epochs={", "'{' is not a YAML value"),
    ],
)
def test_the_error_of_a_wrong_set_says_what_is_allowed(change: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"configs/coco_soft\.yaml: |--set ") as raised:
        load(DEFAULT, [change])
    assert message in str(raised.value)


def test_an_error_names_every_mistake_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("data: {train: [], val: [], extra: 1}\nseed: x\n")
    with pytest.raises(UsageError) as raised:
        load(file)
    assert "unknown key 'data.extra'" in str(raised.value)
    assert "seed: input should be a valid integer" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no settings"),
        ("- 1\n", "contains no settings"),
        ("a: [1\n", "is not YAML"),
        ("seed: 1\n", "data is"),
    ],
)
def test_the_error_of_a_file_without_a_config_says_why(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        load(file)


def test_the_error_of_a_missing_config_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--config: no such file: .*nowhere\.yaml"):
        load(tmp_path / "nowhere.yaml")


def test_every_setting_and_every_section_is_documented() -> None:
    bare = [path for path, field in fields() if not (field.description or "").strip().endswith((".", "^power."))]
    assert bare == []
    sections: list[type[Any]] = [Config]
    for section in sections:
        assert section.__doc__, section
        inner = (configs._section(field.annotation) for field in section.model_fields.values())
        sections += [section for section in inner if section is not None]
    assert len(sections) > 12


def generated_page() -> str:
    command: list[str | Path] = [sys.executable, ROOT / "scripts" / "make_settings_page", "--print"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout


def test_the_settings_page_is_up_to_date() -> None:
    page = ROOT / "docs" / "settings.md"
    assert page.read_text(encoding="utf-8") == generated_page(), "run scripts/make_settings_page"


def test_the_settings_page_lists_every_setting_with_its_default() -> None:
    page = generated_page()
    for path, field in fields():
        line = next(line for line in page.splitlines() if line.startswith(f"| `{path}` |"))
        assert str(field.description) in line
    assert "| `training.epochs` | 0 | whole number" in page


def test_settings_of_version_0_1_are_read() -> None:
    old = {
        "data": {"train": [], "val": [], "maximum_length": 7},
        "training": {
            "scst": {"start_epoch": 0, "maximum_length": 8},
            "validation": {"beam": 5, "length_power": 0.5, "maximum_length": 9, "repeat_penalty": 2.0},
        },
    }
    config = configs.parse(old, "old")
    assert config.training.scst is not None
    assert (config.data.max_length, config.training.scst.max_length) == (7, 8)
    assert config.training.validation.search == SearchOptions(
        beam=5, length_power=0.5, max_length=9, repeat_penalty=2.0
    )
    assert configs.parse(yaml.safe_load(configs.dump(config)), "again") == config


def test_absent_search_settings_have_the_defaults_of_validation() -> None:
    raw = {"data": {"train": [], "val": []}, "training": {"validation": {"search": {"beam": 5}}}}
    assert configs.parse(raw, "config").training.validation.search == SearchOptions(beam=5, length_power=0.7)


def test_a_wrong_search_option_is_named() -> None:
    raw = {"data": {"train": [], "val": []}, "training": {"validation": {"search": {"beem": 5}}}}
    with pytest.raises(UsageError, match=r"validation.search: unknown search option .beem.. Did you mean .beam"):
        configs.parse(raw, "config")
