"""SPICE, run from the jar that pycocoevalcap installs where Java and the Stanford models are there as well."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")


def spice_missing(folder: Path | None = None) -> str | None:
    """Why SPICE can't run here, or None. Nothing is downloaded to make it run."""
    folder = folder or _folder()
    if shutil.which("java") is None:
        return "needs Java, which is not on the path"
    if folder is None or not (folder / "spice-1.0.jar").is_file():
        return "needs spice-1.0.jar of the package pycocoevalcap"
    absent = [name for name in MODELS if not (folder / "lib" / name).is_file()]
    if absent:
        return f"needs {' and '.join(absent)} in {folder / 'lib'} (Stanford CoreNLP of 2015-12-09)"
    return None


def spice_scores(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], folder: Path | None = None
) -> NDArray[np.float64]:
    """The F value of each caption, from 0 to 1. Ask `spice_missing` first."""
    folder = folder or _folder()
    assert folder is not None
    questions = [{"image_id": key, "test": text, "refs": list(references[key])} for key, text in captions.items()]
    with tempfile.TemporaryDirectory() as scratch:
        asked, answered = Path(scratch) / "captions.json", Path(scratch) / "scores.json"
        asked.write_text(json.dumps(questions), encoding="utf-8")
        command = ["java", "-Xmx8G", "-jar", "spice-1.0.jar", str(asked), "-out", str(answered), "-silent"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        answers = json.loads(answered.read_text(encoding="utf-8"))
    scores = {answer["image_id"]: answer["scores"]["All"]["f"] for answer in answers}
    # A caption and references without any object have no F value: nothing was right.
    return np.array([_number(scores[key]) for key in captions])


def _number(value: object) -> float:
    number = float(value) if isinstance(value, (int, float)) else 0.0
    return 0.0 if math.isnan(number) else number


def _folder() -> Path | None:
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "spice"
