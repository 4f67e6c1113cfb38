"""scripts/bench_train --quick: both loops compute the same loss, and every part gives its figures."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from captioner.workarounds.half_precision import resolve_precision

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "bench_train"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]


@pytest.mark.slow
def test_every_part_writes_figures_to_a_file_named_after_the_hardware(tmp_path: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        SCRIPT,
        "--quick",
        "--threads",
        "1",
        "--rounds",
        "1",
        "--csv",
        tmp_path,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr
    (file,) = tmp_path.glob("train-*processors.csv")
    with file.open(newline="") as lines:
        figures = {row["figure"]: float(row["value"]) for row in csv.DictReader(lines)}
    assert figures["difference of the two losses, same weights"] < 1e-3
    speeds = {name.removeprefix("captioner train, "): value for name, value in figures.items() if "captioner" in name}
    bfloat16 = {"frozen encoder, bfloat16", "tail tuned, bfloat16"}
    expected = {"frozen encoder, annotations cached", "frozen tail run in the loop", "tail tuned"}
    assert set(speeds) == expected | (bfloat16 if resolve_precision("auto", "cpu") == "bfloat16" else set())
    for name, speed in speeds.items():
        assert speed > 0
        assert figures[f"ratio, {name}"] == pytest.approx(speed / figures["plain loop"], rel=0.01)
    shares = [figures[f"{part}, annotations cached"] for part in ("  forward", "  backward", "  optimizer")]
    assert sum(shares) + figures["own share of an epoch, annotations cached"] == pytest.approx(100, abs=0.1)
    assert len([name for name in figures if name.startswith("private memory after epoch")]) == 6
    assert figures["feature files, 900 images"] > 2.5 * figures["feature files, 300 images"]
    assert abs(figures["private memory, growth from few to many"]) < 20


def test_an_unknown_part_is_named_with_the_known_ones() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--only", "sped"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no such part: sped; there are speed, share, epochs, scale" in done.stderr


def test_without_photos_drawn_pictures_have_as_many_captions_as_the_benchmark_trains_on(tmp_path: Path) -> None:
    code = (
        "import sys, json, pathlib, dataclasses\n"
        "from training_benchmark import data_sets, sizes\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "data_sets.write_captioned_pictures(folder, dataclasses.replace(sizes.FULL, pictures=4))\n"
        "content = json.loads((folder / 'captions.json').read_text())\n"
        "print(len(content['images']), len(content['annotations']) // sizes.FULL.captions_per_image)\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}", "CAPTIONER_DATA": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "4 4\n"
