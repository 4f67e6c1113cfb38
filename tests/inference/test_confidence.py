"""Confidence: the formula, its file, and that every way to a caption gives the same number."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner import Captioner
from captioner.bundle.layout import CONFIDENCE, MANIFEST
from captioner.bundle.writing import add_file
from captioner.errors import CaptionerError
from captioner.inference.confidence import FEATURES, ConfidenceModel, WordStatistics, log_odds
from tests.overlay.handmade_captions import caption
from tests.tiny_bundle import SIDE, D, write_model

ROOT = Path(__file__).parents[2]


def handmade(*, coefficients: dict[str, float], intercept: float = 0.0, photo: float = 100.0) -> ConfidenceModel:
    """A model with one topic, the first number of the pooled annotation, that knows the word dog."""
    projection = np.zeros((D, 2))
    projection[0, 0] = 1
    return ConfidenceModel(
        projection=projection,
        offset=np.array([0.0, photo]),
        function_words=frozenset({"a", "the", "on"}),
        words={"dog": WordStatistics(2.0, 0.0, np.array([0.25]))},
        other=WordStatistics(-1.0, -3.0, None),
        coefficients=np.array([coefficients.get(name, 0.0) for name in FEATURES]),
        intercept=intercept,
        about={"fitted_on": "nothing", "measured_on": "nothing", "figures": {}},
    )


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_confidence_is_the_mean_over_content_words():
    model = handmade(coefficients={"reliability": 1.0})
    made = model.of(caption("a dog runs"), np.zeros(D))
    assert made.confidence == pytest.approx((sigmoid(2) + sigmoid(-1)) / 2)
    assert model.of(caption("a the"), np.zeros(D)).confidence == 0


def test_the_features_are_those_of_the_word():
    made = caption("a dog runs")
    (row, _) = handmade(coefficients={}).features(made.words, np.array([1.0, 0.0]))
    values = dict(zip(FEATURES, row, strict=True))
    assert values["probability"] == pytest.approx(0.85)
    assert values["log_odds"] == pytest.approx(math.log(0.85 / 0.15))
    assert values["log_probability"] == pytest.approx(math.log(0.85))
    assert values["gate"] == pytest.approx(0.35)
    assert values["entropy"] == pytest.approx(made.words[1].entropy / math.log(24))
    assert (values["position"], values["length"]) == (pytest.approx(1 / 3), 3)
    assert values["support"] == pytest.approx(log_odds(0.5 + 0.25))
    assert values["relevance"] == pytest.approx(log_odds(0.75))


def test_a_picture_that_is_no_photo_lowers_the_confidence_of_every_caption():
    sure = handmade(coefficients={}, intercept=2.0).of(caption("a dog"), np.zeros(D)).confidence
    half = handmade(coefficients={}, intercept=2.0, photo=0.0).of(caption("a dog"), np.zeros(D)).confidence
    assert sure == pytest.approx(sigmoid(2))
    assert half == pytest.approx(sigmoid(2) / 2)


def test_alternatives_have_their_own_confidence():
    model = handmade(coefficients={"reliability": 1.0})
    made = model.of(caption("a dog", alternatives=("a cat",)), np.zeros(D))
    assert made.alternatives[0].confidence == pytest.approx(sigmoid(-1))


def test_the_file_gives_the_same_confidence_back():
    model = handmade(coefficients={"log_odds": 0.5, "support": 0.25}, intercept=-1.0)
    again = ConfidenceModel.from_json(json.loads(json.dumps(model.to_json())))
    pooled = np.array([0.5, 1.0, 2.0])
    assert again.of(caption("a dog runs"), pooled).confidence == pytest.approx(
        model.of(caption("a dog runs"), pooled).confidence, abs=1e-3
    )
    assert again.about["fitted_on"] == "nothing"


@pytest.mark.parametrize(
    "damage",
    [{"projection": "AAAA"}, {"words": []}, {"format": 9}, {"coefficients": [1]}, {"features": ["x"]}, {"offset": "!"}],
)
def test_a_damaged_file_is_one_sentence(damage: dict[str, Any]):
    values = handmade(coefficients={}).to_json()
    with pytest.raises(CaptionerError, match="somewhere"):
        ConfidenceModel.from_json({**values, **damage}, "somewhere")


@pytest.fixture
def with_confidence(tmp_path: Path) -> Path:
    folder = write_model(tmp_path / "toy").folder
    model = handmade(coefficients={"log_odds": 0.5, "gate": 1.0, "support": 0.5}, intercept=-0.5, photo=2.0)
    add_file(folder, CONFIDENCE, json.dumps(model.to_json()).encode())
    return folder


def pictures(count: int = 7) -> list[Image.Image]:
    blocks = np.random.default_rng(1).integers(0, 256, (count, 2, 2, 3), np.uint8)
    return [Image.fromarray(block.repeat(SIDE // 2, 0).repeat(SIDE // 2, 1)) for block in blocks]


def test_a_bundle_without_the_file_gives_no_confidence(tmp_path: Path):
    captioner = Captioner.load(write_model(tmp_path / "old").folder)
    assert captioner(pictures(1)[0]).confidence is None


def test_the_confidence_is_the_same_alone_in_any_batch_and_in_a_stream(with_confidence: Path):
    captioner = Captioner.load(with_confidence)
    alone = [captioner(picture).confidence for picture in pictures()]
    assert all(value is not None and 0 < value < 1 for value in alone) and len(set(alone)) > 1
    assert [one.confidence for one in captioner(pictures())] == pytest.approx(alone, abs=1e-6)
    for batch in (1, 3):
        assert [one.confidence for one in captioner.stream(pictures(), batch=batch)] == pytest.approx(alone, abs=1e-6)


def test_a_given_sentence_has_no_confidence(with_confidence: Path):
    assert Captioner.load(with_confidence).force(pictures(1)[0], "a cat").confidence is None


def test_adding_the_file_changes_only_its_own_record(tmp_path: Path):
    folder = write_model(tmp_path / "toy").folder
    before = json.loads((folder / MANIFEST).read_text())
    add_file(folder, CONFIDENCE, json.dumps(handmade(coefficients={}).to_json()).encode())
    after = json.loads((folder / MANIFEST).read_text())
    assert after["files"].pop(CONFIDENCE)["size"] == (folder / CONFIDENCE).stat().st_size
    assert after == before


def test_a_file_for_another_model_or_a_changed_one_is_refused(with_confidence: Path):
    wider = replace(handmade(coefficients={}), projection=np.zeros((D + 1, 2)))
    add_file(with_confidence, CONFIDENCE, json.dumps(wider.to_json()).encode())
    with pytest.raises(CaptionerError, match=f"annotations of {D + 1} numbers"):
        Captioner.load(with_confidence)
    (with_confidence / CONFIDENCE).write_text("{}")
    with pytest.raises(CaptionerError, match="damaged"):
        Captioner.load(with_confidence)


@pytest.fixture(scope="module")
def shipped() -> Captioner:
    return Captioner.load(ROOT / "weights" / "default")


def test_a_shipped_model_is_surer_of_photos_than_of_pictures_without_content(shipped: Captioner):
    photos = shipped([ROOT / "examples" / name for name in ("surfer.jpg", "plane.jpg", "horse.jpg")])
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    empty = shipped([noise, np.full((300, 400, 3), 255, np.uint8), np.zeros((300, 400, 3), np.uint8)])
    assert all(one.confidence > 0.5 for one in photos)
    assert all(one.confidence < 0.1 for one in empty)


def test_backends_give_the_same_confidence(shipped: Captioner):
    paths = [ROOT / "examples" / name for name in ("surfer.jpg", "cat.jpg")]
    truth = shipped(paths)
    in_torch = Captioner.load(ROOT / "weights" / "default", backend="torch", device="cpu")(paths)
    assert [one.confidence for one in in_torch] == pytest.approx([one.confidence for one in truth], abs=1e-3)
    in_int8 = Captioner.load(ROOT / "weights" / "default", backend="int8")(paths)
    for one, other in zip(in_int8, truth, strict=True):
        assert one.confidence is not None
        assert one.text != other.text or one.confidence == pytest.approx(other.confidence, abs=0.1)
