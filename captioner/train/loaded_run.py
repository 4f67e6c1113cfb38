"""The model of a training run, loaded from its folder or written into one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import write_atomically
from captioner.model.network import Network
from captioner.model.weights import load_weights
from captioner.text.vocabulary import Vocabulary
from captioner.train import checkpoint
from captioner.train import config_file as configs
from captioner.train.config import Config
from captioner.train.run_folder import RunFolder


@dataclass(frozen=True)
class LoadedRun:
    """A model with the settings and words it was trained with."""

    config: Config
    vocabulary: Vocabulary
    network: Network
    state: dict[str, Any]  # epoch and step, and scores if it was validated


def load_best(run: Path) -> LoadedRun:
    """The model of the best validation."""
    folder = RunFolder(run)
    if not folder.best_weights.is_file():
        raise UsageError(
            f"{run} has no {folder.best_weights.relative_to(run)}: it is no run, or the run has not been validated yet"
        )
    tensors, state = checkpoint.read(folder.best_weights)
    return _load(folder, tensors, state, folder.best_weights)


def load_last(run: Path) -> LoadedRun:
    """The model of the last checkpoint, with the moving average of the weights if the run keeps one."""
    folder = RunFolder(run)
    if not folder.checkpoint.is_file():
        raise UsageError(f"{run} has no {folder.checkpoint.name}: it is no run, or the run has saved no checkpoint yet")
    tensors, state = checkpoint.read(folder.checkpoint)
    state = {name: state[name] for name in ("epoch", "step")}
    loaded = _load(folder, checkpoint.part(tensors, "network"), state, folder.checkpoint)
    parameters = dict(loaded.network.named_parameters())
    for name, average in checkpoint.part(tensors, "average").items():
        parameters[name].data.copy_(average)
    return loaded


def write_best(folder: RunFolder, network: Network, state: dict[str, Any]) -> None:
    """The network as the run's best model; `state` holds epoch, step and scores."""
    folder.best_weights.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write(folder.best_weights, dict(network.state_dict()), state)
    write_atomically(folder.best_scores, json.dumps(state, indent=1) + "\n")


def write_model(out: Path, model: LoadedRun) -> None:
    """Write a model as a run that was never validated: it can be exported, evaluated and trained further."""
    folder = RunFolder(out)
    folder.check_writable()
    try:
        folder.best_weights.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write(folder.best_weights, model.network.state_dict(), model.state)
        write_atomically(folder.config, configs.dump(model.config))
        model.vocabulary.save(folder.vocabulary)
    except OSError as error:
        raise CaptionerError(f"{out} can't be written: {error}") from error


def _load(folder: RunFolder, weights: dict[str, Tensor], state: dict[str, Any], source: Path) -> LoadedRun:
    config = configs.load(folder.config)
    vocabulary = Vocabulary.load(folder.vocabulary)
    network = Network(config.encoder, config.model, len(vocabulary), load=False)
    load_weights(network, weights, str(source))
    return LoadedRun(config, vocabulary, network, state)
