"""Attacks on whole commands: kill -9 chains, Ctrl-C, a full disk, and the network."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PHOTOS = sorted((ROOT / "examples").glob("*.jpg"))
_NETWORK = re.compile(r"AF_INET|AF_NETLINK")


def start(
    folder: Path, *arguments: str | Path, prefix: tuple[str, ...] = (), **options: Any
) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    command = [*prefix, sys.executable, "-m", "captioner", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, **(pipes | options))


def finish(folder: Path, *arguments: str | Path, **options: Any) -> tuple[int, str]:
    process = start(folder, *arguments, **options)
    _, err = process.communicate(timeout=300)
    return process.returncode, err.decode(errors="replace")


def kill_captioning(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """kill -9 at random times, then --resume: in the end the file is that of a run that was not killed."""
    (folder / "photos").mkdir()
    for number in range(40):
        shutil.copy(PHOTOS[number % len(PHOTOS)], folder / "photos" / f"{number:03}.jpg")
    caption = ["caption", "photos", "--threads", "1", "--batch", "4", "-f", "jsonl", "-o"]
    began = time.monotonic()
    finish(folder, *caption, "whole.jsonl")
    whole, length = (folder / "whole.jsonl").read_bytes(), time.monotonic() - began
    tried, bad = 0, []
    while time.monotonic() < end:
        (folder / "out.jsonl").unlink(missing_ok=True)
        for _ in range(3):
            process = start(folder, *caption, "out.jsonl", "--resume", stderr=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.3, 1) * length)
            process.kill()
            process.wait()
            tried += 1
        code, err = finish(folder, *caption, "out.jsonl", "--resume")
        if code or (folder / "out.jsonl").read_bytes() != whole:
            bad.append(f"the file differs after kills, exit code {code}: {err[-300:]}")
    return tried, bad


def kill_training(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """kill -9 at random times, then --resume: in the end the weights are those of a run that was not killed."""
    from captioner.data.shapes import write_shapes

    write_shapes(folder / "data", 20, seed=0, size=32)
    config = {
        "name": "tiny",
        "data": {
            "root": str(folder / "data"),
            "train": [{"captions": "captions_train.json"}],
            "val": [{"captions": "captions_val.json"}],
            "minimum_count": 1,
        },
        "encoder": {"name": "efficientnet_lite0", "size": 32, "annotations": ["stage3"]},
        "features": {"folder": str(folder / "cache")},
        "model": {"annotation_size": 16, "embedding_size": 16, "hidden_size": 16, "attention": {"size": 8}},
        "training": {"epochs": 12, "images": 4, "threads": 1, "checkpoint_every": 1, "validation": {"samples": 0}},
    }
    (folder / "tiny.yaml").write_text(json.dumps(config))
    began = time.monotonic()
    code, err = finish(folder, "train", "--config", "tiny.yaml", "--run", "whole")
    if code:
        return 1, [err[-500:]]
    whole, length = (folder / "whole" / "last.safetensors").read_bytes(), time.monotonic() - began
    tried, bad = 0, []
    while time.monotonic() < end:
        shutil.rmtree(folder / "run", ignore_errors=True)
        for _ in range(4):
            process = start(folder, *_train(folder / "run"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            time.sleep(rng.uniform(0.4, 1.1) * length)
            process.kill()
            process.wait()
            tried += 1
        code, err = finish(folder, *_train(folder / "run"))
        if code or (folder / "run" / "last.safetensors").read_bytes() != whole:
            bad.append(f"the weights differ after kills, exit code {code}: {err[-300:]}")
    return tried, bad


def _train(run: Path) -> list[str | Path]:
    if (run / "last.safetensors").is_file():
        return ["train", "--resume", run]
    return ["train", "--config", "tiny.yaml", "--run", run, *(["--overwrite"] if (run / "run.lock").exists() else [])]


def interrupts(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """Ctrl-C at random times: the command ends within two seconds, with 130 and a sentence."""
    tried, bad = 0, []
    while time.monotonic() < end:
        process = start(folder, "caption", *PHOTOS * 20, "-o", "out", "--overwrite")
        time.sleep(rng.uniform(1.5, 4))
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        tried += 1
        # The interpreter itself may be interrupted while it starts; a traceback of ours is bad at any time.
        if time.monotonic() - began > 2 or (process.returncode != 130 and b"Traceback" in err):
            bad.append(f"exit {process.returncode} after {time.monotonic() - began:.1f} s: {err[-300:]!r}")
    return tried, bad


def full_disk(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """Files may not grow beyond a few bytes: a sentence, and exit code 1 or 2."""
    tried, bad = 0, []
    commands: list[list[str | Path]] = [
        ["caption", *PHOTOS, "-f", format, "-o", f"out.{format}", "--overwrite", "--summary", "summary"]
        for format in ("text", "jsonl", "csv", "coco")
    ]
    commands.append(["overlay", *PHOTOS[:2], "-o", "drawn"])
    while time.monotonic() < end:
        room = rng.randrange(0, 300)
        code, err = finish(
            folder,
            *rng.choice(commands),
            preexec_fn=lambda room=room: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        )
        tried += 1
        if "Traceback" in err or code < 0:
            bad.append(f"exit {code}: {err[-400:]}")
    return tried, bad


def network(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    """strace sees no socket of the internet, and no file appears in the home folder."""
    if not shutil.which("strace"):
        return 0, []
    results = [{"image_id": 1, "caption": "a dog"}, {"image_id": 2, "caption": "a cat on a mat"}]
    references = {"annotations": [{"image_id": n, "caption": "a dog runs"} for n in (1, 2)]}
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "references.json").write_text(json.dumps(references))
    before = set(folder.rglob("*"))
    bad = []
    commands: list[list[str | Path]] = [
        ["caption", PHOTOS[0]],
        ["overlay", PHOTOS[0], "-o", "drawn"],
        ["score", "results.json", "references.json"],
        ["models"],
    ]
    for command in commands:
        trace = folder / "trace"
        code, err = finish(
            folder, *command, prefix=("strace", "-f", "-qq", "-e", "trace=socket,connect", "-o", str(trace))
        )
        if code or _NETWORK.search(trace.read_text()):
            bad.append(f"{command[0]}: exit {code}, {_NETWORK.findall(trace.read_text())[:3]} {err[-200:]}")
        trace.unlink()
        shutil.rmtree(folder / "drawn", ignore_errors=True)
    new = [str(path) for path in set(folder.rglob("*")) - before]
    return len(commands), bad + [f"a file appeared in the home folder: {path}" for path in new[:3]]


ATTACKS = {
    "kills of captioning": kill_captioning,
    "kills of training": kill_training,
    "interrupts": interrupts,
    "full disk": full_disk,
    "network": network,
}
