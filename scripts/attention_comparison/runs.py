"""One run per mechanism and seed: training, export, evaluation and timing.

Each part writes a file when it is done. A run that was stopped continues with the first part whose file is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attention_comparison.mechanisms import MECHANISMS, SAMPLING, TWO_SEEDS
from captioner.bundle.loading import load_bundle
from captioner.errors import CaptionerError
from captioner.evaluation.annotation_sources import FeatureCache
from captioner.evaluation.evaluated_model import load_model
from captioner.files.atomic import write_atomically
from captioner.inference.backend import Annotations
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import search
from captioner.inference.torch_backend import TorchBackend
from captioner.train import config_file as configs
from captioner.train.config import Config
from captioner.train.run_folder import RunFolder
from captioner.train.splits import read_split

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs" / "compare.yaml"
TIMED = 320  # pictures for the timing of search
BATCH = 32


@dataclass(frozen=True)
class Run:
    home: Path
    mechanism: str
    seed: int
    shared_settings: Sequence[str]  # KEY=VALUE, the same for all runs

    @property
    def name(self) -> str:
        return self.mechanism if self.seed == 1 else f"{self.mechanism}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        return self.home / self.name

    @property
    def bundle(self) -> Path:
        return self.folder / "bundle"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    @property
    def timing(self) -> Path:
        return self.folder / "decoder.json"

    def evaluation(self, hard_attention: str | None) -> Path:
        return self.folder / ("evaluation.json" if hard_attention is None else f"evaluation-{hard_attention}.json")

    def hard_attention_modes(self) -> tuple[str | None, ...]:
        """The values of --hard-attention to evaluate with. None is the model's own."""
        return (None, "argmax") if self.mechanism in SAMPLING else (None,)

    def settings(self) -> list[str]:
        mechanism = (f"model.{setting}" for setting in MECHANISMS[self.mechanism])
        return [*self.shared_settings, f"name={self.name}", f"seed={self.seed}", *mechanism]

    def config(self) -> Config:
        """The config that the run was started with."""
        return configs.load(RunFolder(self.folder).config)

    def check_settings(self) -> None:
        """Refuse a folder that was started with other settings: its scores could not be compared."""
        started = RunFolder(self.folder).config
        if started.is_file() and self.config() != configs.load(CONFIG, self.settings()):
            raise CaptionerError(
                f"{self.folder} was started with other settings (see {started}); give another folder with --runs"
            )

    def is_complete(self) -> bool:
        evaluations = [self.evaluation(mode) for mode in self.hard_attention_modes()]
        return all(file.is_file() for file in (self.timing, *evaluations))

    def complete(self) -> None:
        """Do what is missing of training, export, evaluation and timing."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not self.bundle.is_dir():
            self._train()
            self._captioner("export", self.folder, "--output", self.bundle, "--licence", "for comparison only")
        for mode in self.hard_attention_modes():
            if not self.evaluation(mode).is_file():
                self._evaluate(mode)
        if not self.timing.is_file():
            write_atomically(self.timing, json.dumps(self._time_search()))

    def _train(self) -> None:
        if RunFolder(self.folder).checkpoint.is_file():
            self._captioner("train", "--resume", self.folder)
            return
        changes = [argument for setting in self.settings() for argument in ("--set", setting)]
        self._captioner("train", "--config", CONFIG, *changes, "--run", self.folder, "--overwrite")

    def _evaluate(self, hard_attention: str | None) -> None:
        config = self.config()
        assert isinstance(config.data.val, tuple), "the comparison needs a val split of its own, not a share"
        source = config.data.val[0]
        arguments = ["--model", self.folder, "--data", config.path(source.captions)]
        if source.images is not None:
            arguments += ["--images", config.path(source.images)]
        if hard_attention is not None:
            arguments += ["--hard-attention", hard_attention]
        arguments += ["--split", source.split or "val", "--features", config.features.folder]
        scores = self._captioner("evaluate", *arguments, "--no-likelihood", "--json")
        write_atomically(self.evaluation(hard_attention), scores)

    def _time_search(self) -> dict[str, float]:
        """The decoder's number of weights, and captions per second of its search under onnxruntime, without encoder."""
        config = self.config()
        model, items = load_model(self.folder), read_split(config, "val").items[:TIMED]
        trained = model.captioner.backend
        assert isinstance(trained, TorchBackend)  # as for all run folders
        features = FeatureCache(trained, items, config.features.folder)
        batches = [list(range(start, min(start + BATCH, len(items)))) for start in range(0, len(items), BATCH)]
        onnx = OnnxBackend(load_bundle(self.bundle), threads=config.training.threads)
        encoded = [batch.encode() for batch in features.batches(batches)]
        annotations = [Annotations(batch.values.numpy(), onnx.rows, onnx.cols, batch.keys) for batch in encoded]
        search(onnx, annotations[0], model.captioner.defaults)  # warms up
        start = time.monotonic()
        for batch in annotations:
            search(onnx, batch, model.captioner.defaults)
        rate = len(items) / (time.monotonic() - start)
        weights = sum(weight.numel() for weight in trained.network.decoder.parameters())
        return {"captions_per_second": rate, "parameters": weights}

    def _captioner(self, command: str, *arguments: object) -> str:
        """Run a command of captioner and return its standard output. Standard error goes into the log."""
        with self.log.open("a", encoding="utf-8") as log:
            done = subprocess.run(
                [sys.executable, "-m", "captioner", command, *map(str, arguments)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                check=True,
            )
        return done.stdout


def plan_runs(home: Path, mechanisms: Sequence[str], shared_settings: Sequence[str]) -> list[Run]:
    """One run per mechanism, then the second seeds, so that the table has all its rows early."""
    first = [Run(home, mechanism, 1, shared_settings) for mechanism in mechanisms]
    return first + [Run(home, mechanism, 2, shared_settings) for mechanism in mechanisms if mechanism in TWO_SEEDS]
