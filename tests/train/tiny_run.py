"""A tiny data set, and a config that trains a tiny network on it: one epoch takes a fraction of a second."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

from captioner.data.shapes import write_shapes
from captioner.train.config import Config
from captioner.train.config_file import parse

SIZE = 32  # pixels; stage3 of the encoder is then a 4x4 grid


def write_data(folder: Path, images: int = 20, *, seed: int = 0) -> Path:
    """Pictures of coloured shapes with four captions each. One tenth of them is the validation split."""
    write_shapes(folder, images, seed=seed, size=SIZE)
    return folder


def settings(data: Path, **changes: Any) -> dict[str, Any]:
    """The config as it would be in a file. `changes` replace settings: `training__epochs=3` sets training.epochs."""
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
            "validation": {"samples": 0, "search": {"beam": 1, "max_length": 8}},
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = raw
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = copy.deepcopy(value)
    return raw


def config(data: Path, **changes: Any) -> Config:
    return parse(settings(data, **changes), "the test's config")


def write_config(path: Path, data: Path, **changes: Any) -> Path:
    """Write the config to a YAML file."""
    path.write_text(yaml.safe_dump(settings(data, **changes)), encoding="utf-8")
    return path


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The rows of the run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
