"""`captioner caption`: unsure captions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from captioner.bundle.layout import CONFIDENCE
from captioner.bundle.writing import add_file
from captioner.inference.confidence import FEATURES, ConfidenceModel, WordStatistics
from tests.tiny_bundle import write_model


@pytest.fixture
def unsure_model(tmp_path) -> Path:
    """A model whose captions have a confidence of 0.3."""
    folder = write_model(tmp_path / "unsure").folder
    confidence = ConfidenceModel(
        projection=np.zeros((3, 2)),
        offset=np.array([0.0, 50.0]),
        function_words=frozenset(),
        words={},
        other=WordStatistics(0.0, 0.0, None),
        coefficients=np.zeros(len(FEATURES)),
        intercept=float(np.log(0.3 / 0.7)),
        about={"fitted_on": "", "measured_on": "", "figures": {}},
    )
    add_file(folder, CONFIDENCE, json.dumps(confidence.to_json()).encode())
    return folder


def test_an_unsure_caption_is_marked_in_a_third_column(run, photos, unsure_model):
    _, plain, _ = run("photos", "--model", str(unsure_model), "--min-confidence", "0.2")
    code, marked, _ = run("photos", "--model", str(unsure_model), "--min-confidence", "0.5")
    assert code == 0
    assert marked.splitlines() == [f"{line}\t?" for line in plain.splitlines()]


def test_unsure_captions_are_skipped_and_counted(run, photos, unsure_model):
    arguments = ["--min-confidence", "0.5", "--unsure", "skip", "--output", "out.jsonl", "--format", "jsonl"]
    code, _, err = run("photos", "--model", str(unsure_model), *arguments, "--summary", "summary.json")
    assert code == 0 and Path("out.jsonl").read_text() == ""
    assert "0 captioned, 5 skipped: 4 unsure" in err
    assert json.loads(Path("summary.json").read_text())["counts"]["unsure"] == 4


def test_unsure_captions_are_replaced_by_a_text(run, photos, unsure_model):
    arguments = ["--min-confidence", "0.5", "--unsure", "say"]
    _, out, _ = run("photos/img_2.jpg", "--model", str(unsure_model), *arguments, "--sidecar")
    assert out == "photos/img_2.jpg\tno reliable caption\n"
    assert Path("photos/img_2.txt").read_text() == "no reliable caption\n"
    arguments += ["--unsure-text", "?", "--format", "jsonl"]
    _, out, _ = run("photos/img_2.jpg", "--model", str(unsure_model), *arguments)
    values = json.loads(out)
    assert values["sentence"] == "?" and values["caption"] not in ("", "?")
    assert values["confidence"] == pytest.approx(0.3, abs=0.001)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--unsure", "skip"], "--unsure needs --min-confidence"),
        (["--min-confidence", "1.5"], "1.5 is not in the range"),
        (["--min-confidence", "0.5", "--format", "jsonl"], "--unsure mark is for --format text"),
        (["--min-confidence", "0.5", "--sidecar"], "--unsure mark has no place in photos"),
        (["--min-confidence", "0.5", "--write-metadata", "--format", "html"], "--unsure mark has no place in photos"),
        (["--min-confidence", "0.5", "--unsure", "say", "--format", "coco"], "give --unsure skip"),
        (["--min-confidence", "0.5", "--unsure", "say", "--unsure-text", "a\tb"], "one line"),
    ],
)
def test_unsure_options_without_effect_are_refused(run, photos, unsure_model, arguments, sentence):
    code, out, err = run("photos", "--model", str(unsure_model), *arguments)
    assert (code, out) == (2, "") and sentence in err


def test_a_model_without_confidence_cannot_be_asked_for_it(run, photos):
    code, _, err = run("photos", "--min-confidence", "0.5")
    assert code == 2 and "gives no confidence" in err


def test_captions_of_low_confidence_are_counted_at_the_end(run, photos, unsure_model, monkeypatch):
    monkeypatch.setattr("captioner.writers.run_summary.DOUBTFUL", 0.4)
    _, out, err = run("photos", "--model", str(unsure_model))
    assert "note: 4 captions have a confidence below 0.4" in err and len(out.splitlines()) == 4
    _, _, err = run("photos", "--model", str(unsure_model), "--min-confidence", "0.5")
    assert "note:" not in err
