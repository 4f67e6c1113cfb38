"""The whole chain, each time: draw shapes, train, export, caption, overlay, evaluate; soft and hard attention.

Sentences and boxes of the shapes are true by construction, so this is the one place where it is known what a model
should say and where it should look. Needs about a minute for each kind of attention on two cores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training is of the train half")

from click.testing import CliRunner

from captioner.cli import main

CONFIGS = Path(__file__).parents[1] / "configs"


def call(*arguments: object) -> str:
    """A command, in this process; its standard output."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@dataclass(frozen=True)
class Made:
    data: Path
    bundle: Path
    told: dict[str, Any]  # what `captioner evaluate --json` says of the bundle on the test split


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain") / "shapes"
    call("data", "shapes", folder, "--images", 3000)
    return folder


@pytest.fixture(scope="module", params=["shapes", "shapes_hard"])
def made(request: pytest.FixtureRequest, shapes: Path) -> Made:
    root, config = shapes.parent, CONFIGS / f"{request.param}.yaml"
    run, bundle = root / "runs" / request.param, root / "weights" / request.param
    settings = [f"data.root={shapes}", f"features.folder={root / 'cache'}"]  # one cache serves both
    call("train", "--config", config, *(word for each in settings for word in ("--set", each)), "--run", run)
    call("export", run, "--output", bundle)
    told = call("evaluate", "--model", bundle, "--data", shapes, "--split", "test", "--boxes", shapes, "--json")
    return Made(shapes, bundle, json.loads(told))


def test_it_says_what_is_in_the_pictures(made: Made) -> None:
    assert made.told["images"] == 300
    assert made.told["scores"]["BLEU-4"] > 90


def test_it_looks_at_what_it_names(made: Made) -> None:
    """Far over chance, and far over looking where things are in other pictures."""
    boxes = made.told["boxes"]
    assert boxes["nouns"] > 350
    for figure, least in (("pointing", 0.5), ("mass", 0.3)):
        found = boxes[figure]
        assert found["value"]["low"] > least
        assert found["value"]["low"] > 3 * max(found["even"], found["elsewhere"])


def test_its_maps_move(made: Made) -> None:
    assert made.told["alarms"] == []
    assert made.told["maps"]["movement"]["low"] > 0.1


def test_its_captions_are_of_the_picture_and_not_of_the_language(made: Made) -> None:
    assert made.told["captions"]["different"] > 0.5
    assert made.told["likelihood"]["perplexity"]["value"] < 2


def test_the_bundle_captions_a_picture_and_draws_where_it_looked(made: Made, tmp_path: Path) -> None:
    picture = made.data / "images" / "shapes_003000.png"
    name, text = call("caption", "--model", made.bundle, picture).strip().split("\t")
    assert name == str(picture) and {"circle", "square", "triangle", "star", "cross"} & set(text.split())
    call("overlay", "--model", made.bundle, picture, "--output", tmp_path / "out", "--format", "png,html")
    written = {path.suffix for path in (tmp_path / "out").rglob("shapes_003000*")}
    assert {".png", ".html"} <= written
