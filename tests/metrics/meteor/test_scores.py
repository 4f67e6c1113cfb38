"""METEOR in Python gives the jar's scores, segment by segment and for the corpus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from captioner.metrics.meteor import meteor_scores, meteor_statistics
from captioner.metrics.meteor.resources import Files, is_installed
from captioner.text.tokenizer import tokenize

pytestmark = pytest.mark.skipif(not is_installed(), reason="pycocoevalcap's METEOR files are not installed")

# Recorded by running meteor-1.5.jar as pycocoevalcap does (-stdio -l en -norm), each case alone, then all.
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))
CASES = GOLDEN["cases"]


@pytest.mark.parametrize("name", CASES)
def test_a_segment_has_the_score_of_the_jar(name: str) -> None:
    case = CASES[name]
    statistics = meteor_statistics({"i": case["caption"]}, {"i": case["references"]})
    assert meteor_scores(statistics) == pytest.approx([case["score"]], abs=1e-9)


def test_a_corpus_has_the_score_of_the_jar() -> None:
    captions = {name: case["caption"] for name, case in CASES.items()}
    references = {name: case["references"] for name, case in CASES.items()}
    statistics = meteor_statistics(captions, references)
    assert float(meteor_scores(statistics.sum(axis=0))) == pytest.approx(GOLDEN["corpus"], abs=1e-9)


def test_the_score_of_a_caption_does_not_depend_on_the_other_captions() -> None:
    captions = {name: case["caption"] for name, case in CASES.items()}
    references = {name: case["references"] for name, case in CASES.items()}
    together = meteor_scores(meteor_statistics(captions, references))
    assert together == pytest.approx(np.array([case["score"] for case in CASES.values()]), abs=1e-9)


def data_folder() -> Path:
    here = Path(__file__).parents[3] / ".." / "shared" / "data"
    return Path(os.environ.get("CAPTIONER_DATA", here)) / "coco"


@pytest.mark.skipif(shutil.which("java") is None, reason="Java runs the jar that ours is compared with")
@pytest.mark.skipif(not data_folder().is_dir(), reason="COCO's captions are not here (CAPTIONER_DATA)")
@pytest.mark.skipif("CAPTIONER_SLOW" not in os.environ, reason="runs the jar for a minute (CAPTIONER_SLOW=1)")
def test_a_thousand_images_have_the_scores_of_the_jar(tmp_path: Path) -> None:
    groups: dict[int, list[str]] = {}
    content = json.loads((data_folder() / "captions_val.json").read_text(encoding="utf-8"))
    for annotation in content["annotations"]:
        groups.setdefault(annotation["image_id"], []).append(" ".join(tokenize(annotation["caption"])))
    chosen = {str(i): g for i, g in sorted(groups.items())[:1000] if len(g) > 1}
    captions = {i: group[0] for i, group in chosen.items()}
    references = {i: group[1:5] + group[1:2] * (4 - len(group[1:5])) for i, group in chosen.items()}
    (tmp_path / "test").write_text("".join(text + "\n" for text in captions.values()), encoding="utf-8")
    lines = "".join(text + "\n" for group in references.values() for text in group)
    (tmp_path / "references").write_text(lines, encoding="utf-8")
    command = ["java", "-Xmx2G", "-jar", str(Files.find().jar), "test", "references"]
    run = subprocess.run(
        [*command, "-l", "en", "-norm", "-r", "4"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    theirs = [float(line.split()[-1]) for line in run.stdout.splitlines() if line.startswith("Segment")]
    ours = meteor_scores(meteor_statistics(captions, references))
    assert len(theirs) == len(ours) >= 990
    assert np.mean(np.abs(ours - np.array(theirs)) < 5e-4) >= 0.99
    corpus = float(next(line for line in run.stdout.splitlines() if line.startswith("Final")).split()[-1])
    assert 100 * meteor_scores(meteor_statistics(captions, references).sum(axis=0)) == pytest.approx(
        100 * corpus, abs=0.05
    )
