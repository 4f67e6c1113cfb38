"""All commands in a row, with soft and hard attention: draw shapes, train, export, caption, overlay, evaluate.

Captions and boxes of the shapes are true by construction: this test knows what a model should say, and where it
should look. Takes about one minute per kind of attention on two cores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training needs captioner[train]")

from click.testing import CliRunner

from captioner.cli import main

pytestmark = pytest.mark.slow
CONFIGS = Path(__file__).parents[1] / "configs"


def call(*arguments: object) -> str:
    """Run a command in this process and return its standard output."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@dataclass(frozen=True)
class TrainedModel:
    data: Path
    bundle: Path
    evaluation: dict[str, Any]  # from `captioner evaluate --json` on the test split


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain") / "shapes"
    call("data", "shapes", folder, "--images", 3000)
    return folder


@pytest.fixture(scope="module", params=["shapes", "shapes_hard"])
def trained(request: pytest.FixtureRequest, shapes: Path) -> TrainedModel:
    root, config = shapes.parent, CONFIGS / f"{request.param}.yaml"
    run, bundle = root / "runs" / request.param, root / "weights" / request.param
    settings = [f"data.root={shapes}", f"features.folder={root / 'cache'}"]  # both kinds of attention share the cache
    call(
        "train",
        "--config",
        config,
        *(argument for setting in settings for argument in ("--set", setting)),
        "--run",
        run,
    )
    call("export", run, "--output", bundle)
    evaluation = call("evaluate", "--model", bundle, "--data", shapes, "--split", "test", "--boxes", shapes, "--json")
    return TrainedModel(shapes, bundle, json.loads(evaluation))


def test_captions_describe_the_pictures(trained: TrainedModel) -> None:
    assert trained.evaluation["images"] == 300
    assert trained.evaluation["scores"]["BLEU-4"] > 90


def test_attention_is_on_the_named_object(trained: TrainedModel) -> None:
    """At least three times as often as uniform attention, and as the maps of other pictures."""
    boxes = trained.evaluation["boxes"]
    assert boxes["nouns"] > 350
    for figure, least in (("pointing", 0.5), ("mass", 0.3)):
        low = boxes[figure]["value"]["low"]
        assert low > least
        assert low > 3 * max(boxes[figure]["even"], boxes[figure]["elsewhere"])


def test_attention_moves_from_word_to_word(trained: TrainedModel) -> None:
    assert trained.evaluation["alarms"] == []
    assert trained.evaluation["maps"]["movement"]["low"] > 0.1


def test_captions_differ_from_picture_to_picture(trained: TrainedModel) -> None:
    assert trained.evaluation["captions"]["different"] > 0.5
    assert trained.evaluation["likelihood"]["perplexity"]["value"] < 2


def test_the_bundle_captions_a_picture_and_draws_its_overlay(trained: TrainedModel, tmp_path: Path) -> None:
    picture = trained.data / "images" / "shapes_003000.png"
    name, text = call("caption", "--model", trained.bundle, picture).strip().split("\t")
    assert name == str(picture) and {"circle", "square", "triangle", "star", "cross"} & set(text.split())
    call("overlay", "--model", trained.bundle, picture, "--output", tmp_path / "out", "--format", "png,html")
    written = {path.suffix for path in (tmp_path / "out").rglob("shapes_003000*")}
    assert {".png", ".html"} <= written
