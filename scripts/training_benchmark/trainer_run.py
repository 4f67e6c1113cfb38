"""`captioner train` inside the benchmark's process, one epoch at a time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from captioner.text.vocabulary import Vocabulary
from captioner.train.config import Config
from captioner.train.config_file import parse
from captioner.train.distributed import World
from captioner.train.grids import open_features
from captioner.train.trainer import Trainer
from training_benchmark.data_sets import padded_vocabulary, write_captioned_pictures
from training_benchmark.sizes import ENCODER, Sizes

SINGLE_PROCESS = World(0, 1, torch.device("cpu"))


def benchmark_config(
    folder: Path, sizes: Sizes, threads: int, tail: str | None = None, tuned: bool = False, precision: str = "float32"
) -> Config:
    source = {"captions": str(folder / "captions.json"), "images": str(folder / "images")}
    return parse(
        {
            "data": {"train": [source], "val": [{**source, "captions": str(folder / "val.json")}], "minimum_count": 1},
            "encoder": {
                "name": ENCODER,
                "size": sizes.picture_size,
                "annotations": list(sizes.stages),
                "tail": tail,
            },
            "features": {"folder": str(folder / "cache")},
            "model": {
                "attention": {"size": sizes.attention},
                "annotation_size": sizes.width,
                "embedding_size": sizes.width,
                "hidden_size": sizes.width,
            },
            "training": {
                "epochs": 1000,
                "images": sizes.images_per_step,
                "captions": sizes.captions_per_image,
                "threads": threads,
                "ema": 0.999,
                "precision": precision,
                "checkpoint_every": 500,
                "tune": {"start_epoch": 0 if tuned else 1000},
                "validation": {"images": 8, "samples": 0},
            },
        },
        "bench_train",
    )


@contextmanager
def silent() -> Iterator[None]:
    """Hide what the trainer prints."""
    with Path(os.devnull).open("w") as nowhere, mock.patch.object(sys, "stderr", nowhere):
        yield


class TrainerRun:
    """A Trainer on the benchmark's data. `encoding_seconds` is the time that filling the feature cache took."""

    def __init__(
        self,
        folder: Path,
        sizes: Sizes,
        threads: int,
        name: str,
        tail: str | None = None,
        tuned: bool = False,
        precision: str = "float32",
    ) -> None:
        write_captioned_pictures(folder, sizes)
        run = folder / f"run-{name}"
        run.mkdir()
        self.sizes, self.encoding_seconds = sizes, 0.0

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            cache = open_features(*args, **kwargs)
            if args[2].name == "captions":  # the training split; the second call finds the cache full
                self.encoding_seconds = max(self.encoding_seconds, time.perf_counter() - start)
            return cache

        torch.manual_seed(0)
        vocabulary = padded_vocabulary(folder / "captions.json", sizes.vocabulary)
        with (
            mock.patch("captioner.train.setup.open_features", timed),
            mock.patch.object(Vocabulary, "build", lambda *_, **__: vocabulary),
        ):
            config = benchmark_config(folder, sizes, threads, tail, tuned, precision)
            self.trainer = Trainer(config, run, SINGLE_PROCESS, resume=False)
        self.interrupt = mock.Mock(requested=False)

    def close(self) -> None:
        self.trainer.logger.close()

    def epoch(self) -> float:
        """Train one epoch without validation and return captions per second."""
        state = self.trainer.state
        start = time.perf_counter()
        with silent():
            self.trainer._train_epoch(self.interrupt)
        seconds = time.perf_counter() - start
        state.epoch, state.position = state.epoch + 1, 0
        return self.sizes.pictures * self.sizes.captions_per_image / seconds

    def validate_and_save(self) -> None:
        with silent():
            self.trainer._validate()
            self.trainer._save()
