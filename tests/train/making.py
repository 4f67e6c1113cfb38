"""A tiny set, a tiny network and its config, for the tests of this folder: an epoch takes a fraction of a second."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from captioner.data.shapes import write_shapes
from captioner.train.config import Config, parse

SIZE = 32  # pixels; the encoder's stage3 is then a grid of 4x4


def draw(folder: Path, images: int = 20, *, seed: int = 0) -> Path:
    """A set of coloured shapes, four captions each; a tenth is val."""
    write_shapes(folder, images, seed=seed, size=SIZE)
    return folder


def settings(data: Path, **changes: Any) -> dict[str, Any]:
    """A config as a file would hold it; `changes` go on top, `training__epochs=3` for a nested one."""
    raw: dict[str, Any] = {
        "name": "tiny",
        "seed": 3,
        "data": {
            "root": str(data),
            "train": [{"captions": "captions_train.json"}],
            "val": [{"captions": "captions_val.json"}],
            "minimum_count": 1,
        },
        "encoder": {"name": "efficientnet_lite0", "size": SIZE, "annotations": ["stage3"]},
        "features": {"folder": str(data / "cache"), "shard": 8, "batch": 4},
        "model": {
            "attention": {"mode": "soft", "size": 8},
            "annotation_size": 16,
            "embedding_size": 16,
            "hidden_size": 16,
            "dropout": 0.2,
        },
        "training": {
            "epochs": 2,
            "images": 4,
            "captions": 3,
            "threads": 1,
            "checkpoint_every": 3,
            "optimizer": {"learning_rate": 0.003},
            "schedule": {"warmup": 2},
            "validation": {"beam": 1, "samples": 0, "maximum_length": 8},
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = raw
        for part in parents:
            place = place.setdefault(part, {})
        place[last] = copy.deepcopy(value)
    return raw


def config(data: Path, **changes: Any) -> Config:
    return parse(settings(data, **changes), "the test's config")


def write(path: Path, data: Path, **changes: Any) -> Path:
    """The config as a file."""
    path.write_text(yaml.safe_dump(settings(data, **changes)), encoding="utf-8")
    return path


def rows(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
