"""Names that are legal but odd: every format writes them so that a resumed run and other readers get them back."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from PIL import Image

from tests.tiny_bundle import write_model

NAMES = [
    b"plain.png",
    b"\xff\xfe.png",
    b"cr\rlf\n.png",
    b"vt\x0bff\x0c.png",
    "nel\u0085ls\u2028.png".encode(),
    "\u202egnp.png".encode(),
    b"-dash.png",
    b"=cmd.png",
    b"'=cmd.png",
    b"\x1b]0;owned\x07.png",
    b"a\\b\tc.png",
]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows allows none of these names")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "toy").folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(NAMES):
        with open(os.path.join(os.fsencode(tmp_path / "photos"), name), "wb") as file:  # noqa: PTH118, PTH123
            Image.new("RGB", (20, 20), (20 * number, 0, 0)).save(file, "PNG")
    return tmp_path


def call(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "captioner", *map(str, arguments)]
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"PYTHONPATH": root, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120)
    assert b"Traceback" not in done.stderr, done.stderr.decode(errors="replace")
    return done


@pytest.mark.parametrize("format", ["text", "jsonl", "csv", "coco", "parquet", "html"])
def test_a_resumed_run_and_other_readers_get_every_name_back(photos, model, format):
    options = ["--escape-formulas"] if format == "csv" else []
    caption = ["caption", "photos", "-m", model, "-f", format, "-o", "out", *options]
    assert call(photos, *caption).returncode == 0
    before = (photos / "out").read_bytes()
    again = call(photos, *caption, "--resume")
    assert again.returncode == 0
    assert (photos / "out").read_bytes() == before
    names = {os.path.join(b"photos", name) for name in NAMES}  # noqa: PTH118
    if format == "csv":
        with (photos / "out").open(newline="", errors="surrogateescape", encoding="utf-8") as file:
            read = {os.fsencode(row["image"]) for row in csv.DictReader(file)}
        assert read == names
    elif format == "parquet":
        stored = pyarrow.parquet.read_table(photos / "out").column("image").to_pylist()
        assert len(stored) == len(NAMES) and "photos/\\udcff\\udcfe.png" in stored
    elif format == "html":
        entries = json.loads(re.findall(r'id="captions">(.*?)</script>', before.decode("utf-8"))[0])
        assert {os.fsencode(entry["image"]) for entry in entries} == names and len(entries) == len(NAMES)
    elif format != "text":
        content = before.decode("utf-8")
        entries = json.loads(content) if format == "coco" else [json.loads(line) for line in content.splitlines()]
        assert {os.fsencode(entry["file_name" if format == "coco" else "image"]) for entry in entries} == names
    else:
        assert len(before.decode("utf-8", "surrogateescape").splitlines()) == len(NAMES)


def test_formulas_are_text_for_a_spreadsheet_only_with_the_option(photos, model):
    os.chdir(photos / "photos")
    for options, first in (([], "=cmd.png"), (["--escape-formulas"], "'=cmd.png")):
        done = call(photos / "photos", "caption", "=cmd.png", "-m", model, "-f", "csv", *options)
        assert list(csv.reader(done.stdout.decode().splitlines()))[1][0] == first
    os.chdir(photos)


def test_messages_show_control_characters_by_their_number(photos, model):
    for path in (photos / "photos").iterdir():
        path.write_bytes(b"\x89PNG\r\n\x1a\n broken")
    done = call(photos, "caption", "photos", "-m", model, "--summary", "summary.json")
    assert done.returncode == 1
    assert b"\\x1b]0;owned\\x07.png" in done.stderr and b"\\u202egnp.png" in done.stderr and b"\\xff" in done.stderr
    assert not set(done.stderr) & {0x1B, 0x07, 0x0B, 0x0D}
    summary = json.loads((photos / "summary.json").read_text(encoding="utf-8"))
    assert len(summary["inputs"]) == len(NAMES)
    assert call(photos, "caption", "--retry", "summary.json", "-m", model).returncode == 1


def test_overlays_and_their_gallery_are_drawn_of_every_name(photos, model):
    done = call(photos, "overlay", "photos", "-m", model, "-o", "drawn", "-f", "html,npz")
    assert done.returncode == 0, done.stderr
    assert len(list((photos / "drawn").glob("*.html"))) == len(NAMES) + 1
    (photos / "drawn" / "index.html").read_text(encoding="utf-8")


def test_sidecars_of_long_names_are_written_and_one_that_cannot_be_costs_a_sentence(tmp_path, model):
    long, too_long = "n" * 245 + ".png", "m" * 251 + ".png"
    for name in (long, too_long, "other.png"):
        Image.new("RGB", (20, 20)).save(tmp_path / name, "PNG")
    done = call(tmp_path, "caption", ".", "-m", model, "--sidecar", "--sidecar-extension", ".captions")
    assert done.returncode == 1
    assert done.stderr.count(b"cannot be written (File name too long)") == 1
    assert (tmp_path / "other.captions").is_file()
    assert len(done.stdout.splitlines()) == 3
    assert call(tmp_path, "caption", long, "-m", model, "--sidecar").returncode == 0
    assert (tmp_path / ("n" * 245 + ".txt")).is_file()


def test_an_output_that_is_deleted_or_closed_is_reported(tmp_path, model):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    command = f"{sys.executable} -m captioner caption a.png -m {model} >&-"
    done = subprocess.run(
        command,
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        timeout=60,
    )
    assert done.returncode in (1, 2) and b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "models",
        "data check photos",
        "score --results results.json --references references.json",
        "evaluate --data photos --split val -m toy",
    ],
)
def test_a_command_that_only_prints_is_refused_if_standard_output_is_closed(tmp_path, command):
    (tmp_path / "photos").mkdir()
    for name in ("results.json", "references.json", "photos/a.txt"):
        (tmp_path / name).write_text("[]")
    done = subprocess.run(
        f"{sys.executable} -m captioner {command} >&-",
        shell=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "captioner: standard output is closed, so there is nowhere to write the result\n",
    )
