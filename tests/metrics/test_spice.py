"""SPICE calls Java correctly if its files are installed, and says what is missing otherwise."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from captioner.metrics.spice import MODELS, spice_missing, spice_scores

# In place of Java: answers with the number of words that caption and first reference share, out of ten.
JAVA = f"""#!{sys.executable}
import json, sys
arguments = sys.argv[1:]
assert arguments[1:3] == ["-jar", "spice-1.0.jar"], arguments
out = arguments[arguments.index("-out") + 1]
answers = []
for q in reversed(json.load(open(arguments[3]))):
    shared = len(set(q["test"].split()) & set(q["refs"][0].split()))
    answers.append({{"image_id": q["image_id"], "scores": {{"All": {{"f": shared / 10 if shared else None}}}}}})
json.dump(answers, open(out, "w"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "lib").mkdir()
    (tmp_path / "spice-1.0.jar").touch()
    for name in MODELS:
        (tmp_path / "lib" / name).touch()
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for java")
def test_scores_are_in_the_order_of_the_captions(folder: Path) -> None:
    captions = {"1": "a dog runs", "2": "nothing", "3": "a dog runs fast"}
    references = {image: ["a dog runs fast here"] for image in captions}
    assert spice_missing(folder) is None
    assert spice_scores(captions, references, folder).tolist() == pytest.approx([0.3, 0.0, 0.4])


@pytest.mark.skipif(sys.platform == "win32", reason="a script stands in for java")
def test_missing_parts_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lib" / MODELS[1]).unlink()
    assert "models.jar" in str(spice_missing(folder)) and MODELS[0] + " and" not in str(spice_missing(folder))
    (folder / "spice-1.0.jar").unlink()
    assert "spice-1.0.jar" in str(spice_missing(folder))
    monkeypatch.setenv("PATH", str(folder))
    assert "Java" in str(spice_missing(folder))


def test_nothing_is_downloaded_if_models_are_missing(folder: Path) -> None:
    (folder / "lib" / MODELS[0]).unlink()
    spice_missing(folder)
    assert not (folder / "lib" / MODELS[0]).exists()
    assert json.dumps(sorted(p.name for p in (folder / "lib").iterdir())) == json.dumps([MODELS[1]])
