"""Where a run stands, and its way onto the disk and back: the checkpoint to go on from, and the best weights."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.bundle.storage import MANIFEST, VOCABULARY, WEIGHTS
from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import write_atomically
from captioner.model.network import Network
from captioner.model.weights import load_weights
from captioner.text.vocabulary import Vocabulary
from captioner.train import checkpoint
from captioner.train import config as configs
from captioner.train.config import Config
from captioner.train.distributed import World
from captioner.train.ema import EMA


@dataclass
class TrainingState:
    """The JSON part of a checkpoint."""

    step: int = 0  # batches done
    epoch: int = 0
    position: int = 0  # batches of the epoch done
    stage_steps: int = 0  # batches of the self-critical stage done
    baseline: float | None = None  # of hard attention: moving average of a word's log p
    plateaus: int = 0
    best: float = -math.inf
    best_epoch: int = -1
    waiting: int = 0  # validations since the best
    sums: dict[str, float] = field(default_factory=dict)  # since the last line of metrics.jsonl


@dataclass
class Keeper:
    """Writes what changes as a run goes on, of which it is told once; the leading process alone writes."""

    folder: Path
    world: World
    network: Network
    optimizer: torch.optim.Optimizer
    ema: EMA
    scaler: torch.amp.GradScaler
    saved: int = 0  # the last checkpoint's step

    def save(self, progress: TrainingState) -> None:
        if self.world.is_main:
            held = {f"network.{k}": v for k, v in self.network.state_dict().items()}
            held |= {f"average.{k}": v for k, v in self.ema.tensors.items()}
            held |= {f"optimizer.{k}": v for k, v in checkpoint.optimizer_tensors(self.optimizer).items()}
            held["rng.torch"] = torch.get_rng_state()
            if self.world.device.type == "cuda":
                held["rng.cuda"] = torch.cuda.get_rng_state()
            state = asdict(progress) | {"scaler": self.scaler.state_dict()}
            checkpoint.write(self.folder / checkpoint.LAST, held, state)
        self.saved = progress.step
        self.world.wait()

    def restore(self, held: dict[str, Tensor], state: dict[str, Any]) -> TrainingState:
        """Everything but the network's weights, which came before the features."""
        checkpoint.restore_optimizer(self.optimizer, checkpoint.part(held, "optimizer"))
        self.ema.restore(checkpoint.part(held, "average"))
        torch.set_rng_state(held["rng.torch"])
        if self.world.device.type == "cuda" and "rng.cuda" in held:
            torch.cuda.set_rng_state(held["rng.cuda"])
        self.scaler.load_state_dict(state.pop("scaler"))
        progress = TrainingState(**state)
        self.saved = progress.step
        return progress

    def save_best(self, progress: TrainingState, scores: dict[str, float]) -> None:
        if self.world.is_main:
            best = self.folder / "best"
            best.mkdir(exist_ok=True)
            state = {"epoch": progress.epoch, "step": progress.step, "scores": scores}
            checkpoint.write(best / WEIGHTS, dict(self.network.state_dict()), state)
            write_atomically(best / "scores.json", json.dumps(state, indent=1) + "\n")

    def last_good(self) -> str:
        return f"the last good checkpoint is {self.folder / checkpoint.LAST}"


@dataclass(frozen=True)
class LoadedRun:
    """A model of a run."""

    config: Config
    vocabulary: Vocabulary
    network: Network
    state: dict[str, Any]  # epoch, step and, where it was validated, scores


def load_best(run: Path) -> LoadedRun:
    """The model of the best validation."""
    path = run / "best" / WEIGHTS
    if not path.is_file():
        raise UsageError(f"{run} has no best/{WEIGHTS}: it is no run, or one that has not been validated yet")
    held, state = checkpoint.read(path)
    return _load(run, held, state, path)


def load_last(run: Path) -> LoadedRun:
    """The model of the last checkpoint, with averaged weights where the run keeps an average."""
    path = run / checkpoint.LAST
    if not path.is_file():
        raise UsageError(f"{run} has no {checkpoint.LAST}: it is no run, or one that has saved no checkpoint yet")
    held, state = checkpoint.read(path)
    kept = _load(run, checkpoint.part(held, "network"), {k: state[k] for k in ("epoch", "step")}, path)
    learnt = dict(kept.network.named_parameters())
    for name, average in checkpoint.part(held, "average").items():
        learnt[name].data.copy_(average)
    return kept


def check_free(out: Path) -> None:
    """Refuse to write a model where something else is; an older one that `write_model` wrote may be replaced."""
    if (out / checkpoint.LAST).exists():
        raise UsageError(f"{out} is a training run, whose best weights would be lost; give another folder")
    if (out / MANIFEST).exists() or (out.exists() and not out.is_dir()):
        raise UsageError(f"{out} is a {'bundle' if out.is_dir() else 'file'}; give another folder")


def write_model(out: Path, kept: LoadedRun) -> None:
    """A model as a run that was never validated, to export, evaluate or go on from."""
    check_free(out)
    try:
        (out / "best").mkdir(parents=True, exist_ok=True)
        checkpoint.write(out / "best" / WEIGHTS, kept.network.state_dict(), kept.state)
        write_atomically(out / "config.yaml", configs.dump(kept.config))
        kept.vocabulary.save(out / VOCABULARY)
    except OSError as error:
        raise CaptionerError(f"{out} can't be written: {error}") from error


def write_mean(out: Path, kept: Sequence[LoadedRun]) -> None:
    """The mean of the models' weights; its settings are the first one's."""
    check_free(out)
    first, *others = kept
    for other in others:
        same = other.config.encoder == first.config.encoder and other.vocabulary.words == first.vocabulary.words
        if not same or _shapes(other.network) != _shapes(first.network):
            raise UsageError(
                f"the weights of {other.config.name} and {first.config.name} can't be averaged: encoder, sizes and "
                "vocabulary must be the same"
            )
    states = [each.network.state_dict() for each in kept]
    mean = {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(value.dtype)
        for name, value in states[0].items()
    }
    first.network.load_state_dict(mean)
    write_model(out, replace(first, state={"epoch": first.state["epoch"], "step": first.state["step"]}))


def _shapes(network: Network) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in network.state_dict().items()}


def _load(run: Path, weights: dict[str, Tensor], state: dict[str, Any], path: Path) -> LoadedRun:
    config = configs.load(run / "config.yaml")
    vocabulary = Vocabulary.load(run / VOCABULARY)
    network = Network(config.encoder, config.model, len(vocabulary), load=False)
    load_weights(network, weights, str(path))
    return LoadedRun(config, vocabulary, network, state)
