"""The public names: complete, typed, loaded when used, and quick to import."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import captioner
from tests.tiny_bundle import write_model

ROOT = Path(__file__).parents[1]
NAMES = {"Caption", "Captioner", "CaptionerError", "Failure", "SearchOptions", "UsageError", "Word"}


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_all_public_names_can_be_imported_and_listed() -> None:
    assert set(captioner.__all__) == NAMES <= set(dir(captioner))
    for name in NAMES:
        assert getattr(captioner, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Captionr'"):
        _ = captioner.Captionr


def test_importing_the_package_loads_no_other_package() -> None:
    heavy = "{'numpy', 'PIL', 'onnxruntime', 'nltk', 'torch', 'click'}"
    assert run(f"import sys, captioner; print(sorted({heavy} & set(sys.modules)))") == "[]\n"


def test_importing_the_captioner_loads_neither_nltk_nor_torch() -> None:
    code = "import sys; from captioner import Captioner, Caption; print({'nltk', 'torch'} & set(sys.modules))"
    assert run(code) == "set()\n"


def test_help_and_the_first_caption_load_neither_nltk_nor_torch(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "toy").folder
    (tmp_path / "photo.png").write_bytes(png())
    for arguments in (["--help"], ["caption", str(tmp_path / "photo.png"), "--model", str(folder)]):
        code = (
            "import atexit, sys\n"
            "atexit.register(lambda: print('loaded', sorted({'nltk', 'torch'} & set(sys.modules))))\n"
            f"sys.argv[1:] = {arguments!r}\n"
            "from captioner.cli import run\n"
            "run()\n"
        )
        assert run(code).splitlines()[-1] == "loaded []"


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 30)).save(buffer, "PNG")
    return buffer.getvalue()


RIGHT = """
import io
from pathlib import Path

import numpy as np
from PIL import Image

from captioner import Caption, Captioner, CaptionerError, Failure, SearchOptions, UsageError, Word

captioner = Captioner.load("default", backend="onnx")
sources: list[str | Path | bytes] = ["a.jpg", Path("b.jpg"), b"jpeg"]
one: Caption = captioner("a.jpg", beam=3, required="cat", hard_attention="argmax", keep_pictures=True)
for source in (np.zeros((2, 2, 3), np.uint8), Image.new("RGB", (2, 2)), io.BytesIO(b"jpeg"), b"jpeg", Path("a.jpg")):
    one = captioner(source)
several: list[Caption] = captioner(sources, n_best=2, required=["cat", ["dog", "puppy"]])
for result in captioner.stream(sources, batch=3, forbidden=["dog"]):
    text: str = result.reason if isinstance(result, Failure) else result.words[0].text
forced: Caption = captioner.force("a.jpg", "a cat", length_power=0)
options: SearchOptions = captioner.options(beam=3)
error: type[CaptionerError] = UsageError
word: Word = one.words[0]
table: dict[str, object] = one.to_dict()
"""
WRONG = (
    'captioner("a.jpg", beem=3)',
    'captioner("a.jpg", beam="x")',
    'captioner.stream(["a.jpg"], beem=3)',
    'captioner.stream(["a.jpg"], beam="x")',
    'captioner.force("a.jpg", "a cat", beem=3)',
    'captioner.force("a.jpg", "a cat", beam="x")',
    'captioner.options(hard_attention="argmin")',
    "SearchOptions(beem=3)",
    "captioner(7)",
)


def test_a_type_checker_accepts_right_calls_and_rejects_wrong_ones(tmp_path: Path) -> None:
    """mypy --strict, as a user of the installed package runs it: py.typed is there."""
    pytest.importorskip("mypy")
    (tmp_path / "snippet.py").write_text(RIGHT + "\n".join(WRONG) + "\n")
    # `--cache-dir` is the repository's, which makes the check quick where mypy has run before.
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={ROOT / '.mypy_cache'}"]
    done = subprocess.run(
        [*command, "snippet.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if " error: " in line}
    first = RIGHT.count("\n") + 1
    assert lines == set(range(first, first + len(WRONG))), done.stdout + done.stderr
