"""kill -9 at random times, again and again: in the end, everything is as if nothing had been killed.

An attack gets a folder, random numbers and a time to end. It returns the number of kills and what went wrong.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from attack_suite.commands import PHOTOS, Arguments, finish, kill, start, write_tiny_set
from captioner.model.weights import read_tensors, tensor_checksum
from captioner.train import checkpoint

KILLS = 4  # of one chain, before the command may finish


def kill_captioning(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    (folder / "photos").mkdir()
    for number in range(40):
        shutil.copy(PHOTOS[number % len(PHOTOS)], folder / "photos" / f"{number:03}.jpg")
    wholes: dict[str, bytes] = {}

    def command(format: str, output: str) -> Arguments:
        return ["caption", "photos", "--threads", "1", "--batch", "4", "-f", format, "-o", output]

    began = time.monotonic()
    for format in ("jsonl", "csv", "text", "coco"):
        finish(folder, *command(format, "whole"))
        wholes[format] = (folder / "whole").read_bytes()
        (folder / "whole").unlink()
    length = (time.monotonic() - began) / len(wholes)
    tried, bad = 0, list[str]()
    while time.monotonic() < end:
        format = rng.choice(list(wholes))
        out = folder / f"out.{format}"
        out.unlink(missing_ok=True)
        resumed = [*command(format, out.name), "--resume"]
        tried += _kills(folder, rng, length, lambda: resumed)  # noqa: B023 (called at once)
        code, err = finish(folder, *resumed)
        if code or out.read_bytes() != wholes[format]:
            bad.append(f"{format}: the file differs after kills, exit code {code}: {err[-300:]}")
    return tried, bad


def kill_training(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    write_tiny_set(folder)
    began = time.monotonic()
    code, err = finish(folder, "train", "--config", "tiny.yaml", "--run", "whole")
    if code:
        return 1, [err[-500:]]
    run = folder / "run"
    whole, length = _run_content(folder / "whole"), time.monotonic() - began

    def command() -> Arguments:
        if (run / "last.safetensors").is_file():
            return ["train", "--resume", run]
        overwrite = ["--overwrite"] if (run / "run.lock").exists() else []
        return ["train", "--config", "tiny.yaml", "--run", run, *overwrite]

    tried, bad = 0, list[str]()
    while time.monotonic() < end:
        shutil.rmtree(run, ignore_errors=True)
        tried += _kills(folder, rng, length, command)
        code, err = finish(folder, *command())
        if code or _run_content(run) != whole:
            bad.append(f"the run differs after kills, exit code {code}: {err[-300:]}")
    return tried, bad


def kill_features(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    write_tiny_set(folder, 200)
    began = time.monotonic()
    features: Arguments = ["features", "--config", "tiny.yaml"]
    code, err = finish(folder, *features)
    if code:
        return 1, [err[-500:]]
    whole, length = _feature_rows(folder / "cache"), time.monotonic() - began
    tried, bad = 0, list[str]()
    while time.monotonic() < end:
        shutil.rmtree(folder / "cache")
        tried += _kills(folder, rng, length, lambda: features)
        code, err = finish(folder, *features)
        verified, problem = finish(folder, *features, "--verify")
        left = [path.name for path in (folder / "cache").rglob("*.part")]
        if code or verified or _feature_rows(folder / "cache") != whole or left:
            bad.append(f"the cache differs after kills, exit codes {code}, {verified}: {left} {(err + problem)[-300:]}")
    return tried, bad


def kill_export(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """Two runs are exported to the same folder in turns: after a kill it has one of the two models, or none yet."""
    write_tiny_set(folder)
    wholes = []
    named = ("--name", "out", "--licence", "CC0-1.0")
    began = time.monotonic()
    for seed in (1, 2):
        run: Arguments = ["--run", f"run{seed}", "--set", f"seed={seed}", "--set", "training.epochs=1"]
        trained, err = finish(folder, "train", "--config", "tiny.yaml", *run)
        began = time.monotonic()
        exported, more = finish(folder, "export", f"run{seed}", "-o", f"whole{seed}", *named)
        if trained or exported:
            return 1, [(err + more)[-500:]]
        wholes.append(_checksums(folder / f"whole{seed}"))
    length = time.monotonic() - began
    out = folder / "models" / "out"
    tried, bad = 0, list[str]()
    while time.monotonic() < end:
        for _ in range(KILLS):
            export: Arguments = ["export", f"run{rng.choice((1, 2))}", "-o", out, *named, "--overwrite"]
            tried += _kills(folder, rng, length, lambda: export, kills=1)  # noqa: B023 (called at once)
            if out.exists() and _checksums(out) not in wholes:
                bad.append(f"half a bundle after a kill: {sorted(_checksums(out))}")
        code, err = finish(folder, "export", "run1", "-o", out, *named, "--overwrite")
        left = sorted(path.name for path in out.parent.iterdir())
        if code or _checksums(out) != wholes[0] or left != ["out"]:
            bad.append(f"the bundle differs after kills, exit code {code}: {left} {err[-300:]}")
    return tried, bad


ATTACKS = {
    "kills of captioning": kill_captioning,
    "kills of training": kill_training,
    "kills of features": kill_features,
    "kills of export": kill_export,
}


def _kills(
    folder: Path, rng: random.Random, length: float, command: Callable[[], Arguments], *, kills: int = KILLS
) -> int:
    """Start a command that takes `length` seconds and kill it, several times. Returns the number of kills."""
    for _ in range(kills):
        process = start(folder, *command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0.3, 1.1) * length)
        kill(process)
    return kills


def _run_content(run: Path) -> list[object]:
    """All numbers of a run. The files of safetensors are not compared byte for byte: the order of a header varies."""
    tensors, state = checkpoint.read(run / "last.safetensors")
    best, _ = read_tensors(run / "best" / "model.safetensors")
    metrics = (run / "metrics.jsonl").read_bytes()
    return [tensor_checksum(tensors, ""), state, tensor_checksum(best, ""), metrics]


def _feature_rows(folder: Path) -> dict[str, bytes]:
    """The rows of all shards by the keys of their images; how they are divided into shards may differ."""
    rows = {}
    for listing in sorted(folder.rglob("[0-9]*.json")):
        shard = np.load(listing.with_suffix(".npy"))
        for key, row in zip(json.loads(listing.read_text())["keys"], shard, strict=True):
            if key in rows:
                raise AssertionError(f"{key} is in two shards")
            rows[key] = row.tobytes()
    return rows


def _checksums(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
