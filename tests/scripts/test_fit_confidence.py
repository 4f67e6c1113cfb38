"""scripts/fit_confidence: its regressions and figures against known values, its drawn pictures, and a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner import Captioner
from captioner.bundle.layout import CONFIDENCE
from confidence_fit.diagram import reliability_diagram
from confidence_fit.non_photos import KINDS, draw_non_photo
from confidence_fit.regression import auroc, calibration_error, logistic_regression, reduced_rank_regression, spearman
from tests.tiny_bundle import SIDE, write_model

ROOT = Path(__file__).parents[2]


def test_logistic_regression_finds_the_coefficients_that_made_the_data():
    random = np.random.default_rng(0)
    table = random.normal(3, [1, 5], (20_000, 2))
    chance = 1 / (1 + np.exp(-(0.8 * table[:, 0] - 0.3 * table[:, 1] - 1)))
    fitted = logistic_regression(table, (random.random(len(table)) < chance).astype(float), ridge=1e-3)
    assert fitted == pytest.approx([0.8, -0.3, -1], abs=0.1)


def test_reduced_rank_regression_finds_a_model_of_that_rank():
    random = np.random.default_rng(0)
    table = random.normal(size=(5000, 6))
    slopes = 0.02 * np.outer(random.normal(size=6), random.normal(size=4))
    targets = (random.random((5000, 4)) < np.clip(0.5 + table @ slopes, 0, 1)).astype(float)
    directions, heads = reduced_rank_regression(table - table.mean(0), targets, 1, ridge=1.0)
    assert directions.shape == (6, 1) and heads.shape == (1, 4)
    assert directions @ heads == pytest.approx(slopes, abs=0.02)


def test_figures_have_their_textbook_values():
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([10.0, 20, 40, 30])) == pytest.approx(0.8)
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 2, 3])) == pytest.approx(1)
    assert auroc(np.array([0.9, 0.8, 0.3]), np.array([0.1, 0.3])) == pytest.approx(5.5 / 6)
    confidence = np.repeat(np.linspace(0.05, 0.95, 10), 10)
    assert calibration_error(confidence, confidence) == pytest.approx(0)
    assert calibration_error(confidence, confidence - 0.04) == pytest.approx(0.04)


@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_picture_depends_on_its_kind_and_seed_only(kind: str):
    first, again, other = (draw_non_photo(kind, seed) for seed in (4, 4, 5))
    assert first.mode == "RGB" and first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_the_diagram_has_one_point_per_bin_and_draws_well_calibrated_ones_on_the_diagonal():
    from xml.etree import ElementTree

    drawing = ElementTree.fromstring(reliability_diagram([[0.2, 0.2], [0.8, 0.8]], "x"))
    circles = drawing.findall(".//{http://www.w3.org/2000/svg}circle")
    (x1, y1), (x2, y2) = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles]
    assert x2 - x1 == pytest.approx(y1 - y2)


@pytest.mark.slow
def test_a_run_writes_a_confidence_that_the_captioner_uses(tmp_path: Path):
    folder = write_model(tmp_path / "toy").folder
    random = np.random.default_rng(0)
    for split, count in (("train", 60), ("val", 60)):
        entries = []
        (tmp_path / split).mkdir()
        for i in range(count):
            block = random.integers(0, 256, (2, 2, 3), np.uint8)
            Image.fromarray(block.repeat(SIDE // 2, 0).repeat(SIDE // 2, 1)).save(tmp_path / split / f"{i}.png")
            text = "a cat runs" if block.mean() > 128 else "a dog sleeps on the mat"
            entries.append({"image": f"{i}.png", "caption": text})
        lines = "".join(f"{entry['image']},{entry['caption']}\n" for entry in entries)
        (tmp_path / split / f"captions_{split}.csv").write_text("image,caption\n" + lines)
    train = tmp_path / "train" / "captions_train.csv"
    arguments = ["--data", tmp_path / "val" / "captions_val.csv", "--fit", 40, "--train-captions", train]
    arguments += ["--card", tmp_path / "d.svg"]
    done = subprocess.run(
        list(map(str, [sys.executable, ROOT / "scripts" / "fit_confidence", folder, *arguments])),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["figures"]["calibration_error"] < 0.5
    assert "## Confidence" in (folder / "README.md").read_text() and (tmp_path / "d.svg").is_file()
    stored = json.loads((folder / CONFIDENCE).read_text())
    assert stored["measured_on"].startswith("captions_val, split val, other 20 images")
    confidence = Captioner.load(folder)(tmp_path / "val" / "0.png").confidence
    assert confidence is not None and 0 <= confidence <= 1
