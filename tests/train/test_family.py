"""Every attention mechanism through config, training, self-critical stage and export; clashing settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from captioner.errors import UsageError
from captioner.export.run_bundle import check_parity, export_run
from captioner.train.start import start
from tests.train import tiny_run

TRANSFORMER = {
    "model__decoder": "transformer",
    "model__attention": {"score": "scaled_dot", "heads": 2, "gate": False},
    "model__layers": 2,
}
KINDS: dict[str, dict[str, Any]] = {
    "transformer": TRANSFORMER,
    "transformer, self-critical": {**TRANSFORMER, "training__scst": {"start_epoch": 1, "samples": 2}},
    "gumbel": {"model__attention": {"mode": "gumbel", "size": 8, "sentinel": True}},
    "gumbel, self-critical": {
        "model__attention": {"mode": "gumbel", "size": 8},
        "training__scst": {"start_epoch": 1, "samples": 2},
    },
    "hard with memory": {"model__attention": {"mode": "hard", "size": 8, "location": "both", "attend": "after"}},
    "sparse, hard, finer grid, self-critical": {
        "encoder__annotations": ["stage4"],
        "encoder__tail": "stage3",
        "encoder__pyramid": {"size": 12, "blocks": 1},
        "model__annotation_size": None,
        "model__attention": {"mode": "hard", "size": 8, "normalizer": "entmax15", "last_word": True},
        "training__scst": {"start_epoch": 1, "samples": 2},
    },
    "heads, own words": {
        "model__attention": {"size": 8, "heads": 2, "location": "ntm"},
        "model__grid_encoder": "self_attention",
        "training__scheduled_sampling": {"increase": 0.3},
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_mechanism_is_trained_validated_and_exported(kind: str, shapes: Path, tmp_path: Path) -> None:
    config = tiny_run.write_config(tmp_path / "config.yaml", shapes, **KINDS[kind])
    start(config, folder=tmp_path / "run", device="cpu")
    told = [row["nll"] for row in tiny_run.read_metrics(tmp_path / "run") if "nll" in row]
    if "scst" not in str(KINDS[kind]):
        assert told[-1] < told[0]
    bundle = export_run(tmp_path / "run", tmp_path / "bundle")
    assert bundle.manifest.attention == ("hard" if "gumbel" in kind or "hard" in kind else "soft")
    assert check_parity(bundle) < 1e-4


def test_the_error_of_an_unknown_mechanism_names_the_nearest(shapes: Path) -> None:
    with pytest.raises(UsageError, match=r"model\.attention\.score: .* got 'aditive'\. Did you mean 'additive'\?"):
        tiny_run.config(shapes, model__attention__score="aditive")
    with pytest.raises(UsageError, match=r"model\.grid_encoder: .* got 'zebra'$"):
        tiny_run.config(shapes, model__grid_encoder="zebra")


CLASHES: dict[str, dict[str, Any]] = {
    "model.attention.heads=2 clashes with model.attention.mode=hard": {
        "model__attention": {"heads": 2, "mode": "hard"}
    },
    "model.attention.attend=both clashes with model.attention.mode=gumbel": {
        "model__attention": {"attend": "both", "mode": "gumbel"}
    },
    "model.attention.heads=3 clashes with model.attention.size=256": {"model__attention": {"heads": 3}},
    "model.attention.score=dot clashes with model.annotation_size=12": {
        "model__attention": {"score": "dot"},
        "model__annotation_size": 12,
    },
    "model.attention.attend=after clashes with model.output_context=false": {
        "model__attention": {"attend": "after"},
        "model__output_context": False,
    },
    "model.attention.attend=both clashes with model.output_context=false": {
        "model__attention": {"attend": "both"},
        "model__output_context": False,
    },
    "model.attention.width=3.0 clashes with model.attention.score=additive": {"model__attention": {"width": 3.0}},
    "model.attention.relaxation=0.2 clashes with model.attention.mode=soft": {"model__attention": {"relaxation": 0.2}},
    "model.grid_encoder_layers=4 clashes with model.grid_encoder=none": {"model__grid_encoder_layers": 4},
    "model.attention.learn_width=true clashes with model.attention.score=additive": {
        "model__attention": {"learn_width": True}
    },
    "model.grid_encoder=lstm clashes with model.annotation_size=15": {
        "model__grid_encoder": "lstm",
        "model__annotation_size": 15,
    },
    "model.grid_encoder_heads=3 clashes with model.annotation_size=16": {
        "model__grid_encoder": "self_attention",
        "model__grid_encoder_heads": 3,
    },
    "model.decoder=transformer clashes with model.attention.score=additive": {"model__decoder": "transformer"},
    "model.decoder=transformer clashes with training.scheduled_sampling.increase=0.1": {
        **TRANSFORMER,
        "training__scheduled_sampling": {"increase": 0.1},
    },
    "training.crop=0.8 clashes with model.grid_encoder=positions": {
        "model__grid_encoder": "positions",
        "training__crop": 0.8,
    },
    "training.crop=0.8 clashes with model.grid_encoder=self_attention": {
        "model__grid_encoder": "self_attention",
        "training__crop": 0.8,
    },
    "training.crop=0.8 clashes with model.attention.location=ntm": {
        "model__attention": {"location": "ntm"},
        "training__crop": 0.8,
    },
    "training.crop=0.8 clashes with model.attention.location=both": {
        "model__attention": {"location": "both"},
        "training__crop": 0.8,
    },
    "model.attention.heads=5 clashes with model.hidden_size=16": {
        "model__decoder": "transformer",
        "model__attention": {"score": "scaled_dot", "heads": 5, "gate": False},
    },
}


def test_heads_of_the_general_score_are_as_wide_as_the_state(shapes: Path) -> None:
    config = tiny_run.config(shapes, model__attention={"score": "general", "heads": 3}, model__annotation_size=12)
    assert config.model.attention.size % 3


@pytest.mark.parametrize("sentence", CLASHES)
def test_the_error_of_clashing_settings_says_what_works(sentence: str, shapes: Path) -> None:
    with pytest.raises(UsageError) as refused:
        tiny_run.config(shapes, **CLASHES[sentence])
    message = str(refused.value)
    assert sentence in message
    assert "; set " in message.partition(sentence)[2]
