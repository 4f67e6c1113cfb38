"""Running captioner's commands in a folder of their own, and small data for those that train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PHOTOS = sorted((ROOT / "examples").glob("*.jpg"))
Arguments = list[str | Path]


def start(
    folder: Path, *arguments: str | Path, prefix: tuple[str, ...] = (), **options: Any
) -> subprocess.Popen[bytes]:
    """A command whose current folder, home and temporary folder are `folder` or inside it."""
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    own = {
        "HOME": folder / "home",
        "XDG_CACHE_HOME": folder / "home" / "cache",
        "TMPDIR": folder / "tmp",
        "PYTHONPATH": ROOT,
        "PYTHONDONTWRITEBYTECODE": 1,
        "OMP_NUM_THREADS": 1,
    }
    inherited = {name: value for name, value in os.environ.items() if name not in _SWITCHES}
    command = [*prefix, sys.executable, "-m", "captioner", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = inherited | {name: str(value) for name, value in own.items()}
    return subprocess.Popen(command, cwd=folder, env=environment, **(pipes | options))


_SWITCHES = ("ORT_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED")  # captioner must set these itself


def finish(folder: Path, *arguments: str | Path, **options: Any) -> tuple[int, str]:
    """The exit code and standard error of a command."""
    process = start(folder, *arguments, **options)
    try:
        _, err = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        kill(process)
        raise
    return process.returncode, (err or b"").decode(errors="replace")


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9, without a word to the process."""
    process.kill()
    process.communicate()


def write_tiny_set(folder: Path, pictures: int = 20) -> None:
    """Drawn pictures with captions in data/, and tiny.yaml: a model that trains in seconds."""
    from captioner.data.shapes import write_shapes

    write_shapes(folder / "data", pictures, seed=0, size=32)
    config = {
        "name": "tiny",
        "data": {
            "root": str(folder / "data"),
            "train": [{"captions": "captions_train.json"}],
            "val": [{"captions": "captions_val.json"}],
            "minimum_count": 1,
        },
        "encoder": {"name": "efficientnet_lite0", "size": 32, "annotations": ["stage3"]},
        "features": {"folder": str(folder / "cache"), "shard": 8},
        "model": {"annotation_size": 16, "embedding_size": 16, "hidden_size": 16, "attention": {"size": 8}},
        "training": {"epochs": 6, "images": 4, "threads": 1, "checkpoint_every": 1, "validation": {"samples": 0}},
    }
    (folder / "tiny.yaml").write_text(json.dumps(config))
