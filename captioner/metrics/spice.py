"""SPICE, run from the jar that pycocoevalcap installs. It needs Java and the Stanford models."""

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
    """Why SPICE can't run here, or None if it can. Nothing is downloaded."""
    folder = folder or _folder()
    if shutil.which("java") is None:
        return "needs Java, which is not on the path"
    if folder is None or not (folder / "spice-1.0.jar").is_file():
        return "needs spice-1.0.jar of the package pycocoevalcap"
    missing = [name for name in MODELS if not (folder / "lib" / name).is_file()]
    if missing:
        return f"needs {' and '.join(missing)} in {folder / 'lib'} (Stanford CoreNLP of 2015-12-09)"
    return None


def spice_scores(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]], folder: Path | None = None
) -> NDArray[np.float64]:
    """The F value of each caption, from 0 to 1. Call `spice_missing` first."""
    folder = folder or _folder()
    assert folder is not None
    requests = [{"image_id": key, "test": text, "refs": list(references[key])} for key, text in captions.items()]
    with tempfile.TemporaryDirectory() as scratch:
        request_file, score_file = Path(scratch) / "captions.json", Path(scratch) / "scores.json"
        request_file.write_text(json.dumps(requests), encoding="utf-8")
        command = ["java", "-Xmx8G", "-jar", "spice-1.0.jar", str(request_file), "-out", str(score_file), "-silent"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        records = json.loads(score_file.read_text(encoding="utf-8"))
    scores = {record["image_id"]: record["scores"]["All"]["f"] for record in records}
    # The F value is undefined if neither caption nor references name an object. That counts as 0.
    return np.array([_number(scores[key]) for key in captions])


def _number(value: object) -> float:
    number = float(value) if isinstance(value, (int, float)) else 0.0
    return 0.0 if math.isnan(number) else number


def _folder() -> Path | None:
    package = importlib.util.find_spec("pycocoevalcap")
    if package is None or not package.submodule_search_locations:
        return None
    return Path(package.submodule_search_locations[0]) / "spice"
