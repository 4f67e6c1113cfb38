"""scripts/compare_web and scripts/bench_web with a tiny model and few pictures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from captioner.errors import CaptionerError
from captioner.web.onnxruntime_web import runtime_files
from tests.overlay.browser import CHROMIUM, DRIVER
from tests.processes import run_with_children
from tests.serve.pictures import png
from tests.tiny_bundle import write_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not CHROMIUM or not DRIVER:
        pytest.skip("no browser found; on Debian: apt-get install chromium chromium-driver")
    try:
        runtime_files()
    except CaptionerError as error:
        pytest.skip(f"the scripts need onnxruntime-web: {error}")
    folder = tmp_path_factory.mktemp("web")
    write_model(folder / "model")
    (folder / "pictures").mkdir()
    for number in range(3):
        (folder / "pictures" / f"{number}.png").write_bytes(png(number, 40))
    return folder / "pictures"


def output_of(script: str, pictures: Path, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / script), str(pictures), "--model", str(pictures.parent / "model")]
    done = run_with_children([*command, *arguments], seconds=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_comparison_counts_equal_captions_and_pixels(pictures: Path) -> None:
    assert "3 of 3 captions are equal, 3 have equal pixels, 0 were not read" in output_of("compare_web", pictures)


@pytest.mark.slow
def test_the_benchmark_measures_the_browser_beside_python(pictures: Path) -> None:
    figures = json.loads(output_of("bench_web", pictures, "--count", "3"))
    for name in ("browser", "browser, one thread"):
        assert figures[name]["first caption cold, s"] > 0 and figures[name]["first caption warm, s"] > 0
        assert figures[name]["photos per second"] > 0 and figures[name]["memory after 10 photos, MB"] > 0
    assert figures["browser, one thread"]["threads"] == 1
    assert figures["python"]["first caption, s"] > 0 and figures["python"]["photos per second"] > 0
