"""Runs of a few steps, and what tests of the trainer share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.train import checkpoint
from captioner.train.distributed import World
from captioner.train.run_folder import RunFolder
from captioner.train.start import start
from tests.train import tiny_run

ALONE = World(0, 1, torch.device("cpu"))


NO_DROPOUT = {"model__dropout": 0.0}


STEADY = {"training__schedule": {"name": "constant", "warmup": 0}}


def run(shapes: Path, folder: Path, **changes: Any) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """Train, and return the last weights and the rows of metrics."""
    config = tiny_run.write_config(folder.with_suffix(".yaml"), shapes, **changes)
    start(config, folder=folder, device="cpu")
    return checkpoint.part(checkpoint.read(RunFolder(folder).checkpoint)[0], "network"), tiny_run.read_metrics(folder)


def training(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "validation" not in row]


def new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder
