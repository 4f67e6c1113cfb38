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


def load_best(folder: Path) -> LoadedRun:
    """The model of the best validation."""
    run_folder = RunFolder(folder)
    if not run_folder.best_weights.is_file():
        raise UsageError(
            f"{folder} has no {run_folder.best_weights.relative_to(folder)}: it is no run, or the run has not been "
            "validated yet"
        )
    tensors, state = checkpoint.read(run_folder.best_weights)
    return _load(run_folder, tensors, state, run_folder.best_weights)


def load_last(folder: Path) -> LoadedRun:
    """The model of the last checkpoint, with the moving average of the weights if the run keeps one."""
    run_folder = RunFolder(folder)
    if not run_folder.checkpoint.is_file():
        raise UsageError(
            f"{folder} has no {run_folder.checkpoint.name}: it is no run, or the run has saved no checkpoint yet"
        )
    tensors, state = checkpoint.read(run_folder.checkpoint)
    state = {name: state.get(name, 0) for name in ("epoch", "step")}
    loaded = _load(run_folder, checkpoint.part(tensors, "network"), state, run_folder.checkpoint)
    parameters = dict(loaded.network.named_parameters())
    for name, average in checkpoint.part(tensors, "average").items():
        if name not in parameters or parameters[name].shape != average.shape:
            raise CaptionerError(f"{run_folder.checkpoint} does not fit the model: average.{name}")
        parameters[name].data.copy_(average)
    return loaded


def write_best(run_folder: RunFolder, network: Network, state: dict[str, Any]) -> None:
    """The network as the run's best model; `state` holds epoch, step and scores."""
    run_folder.best_weights.parent.mkdir(parents=True, exist_ok=True)
    checkpoint.write(run_folder.best_weights, dict(network.state_dict()), state)
    write_atomically(run_folder.best_scores, json.dumps(state, indent=1) + "\n")


def write_model(out: Path, model: LoadedRun) -> None:
    """Write a model as a run that was never validated: it can be exported, evaluated and trained further."""
    run_folder = RunFolder(out)
    run_folder.check_writable()
    try:
        run_folder.best_weights.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write(run_folder.best_weights, model.network.state_dict(), model.state)
        write_atomically(run_folder.config, configs.dump(model.config))
        model.vocabulary.save(run_folder.vocabulary)
    except OSError as error:
        raise CaptionerError(f"{out} can't be written: {error}") from error


def _load(run_folder: RunFolder, weights: dict[str, Tensor], state: dict[str, Any], source: Path) -> LoadedRun:
    config = configs.load(run_folder.config)
    vocabulary = Vocabulary.load(run_folder.vocabulary)
    network = Network(config.encoder, config.model, len(vocabulary), load=False)
    load_weights(network, weights, str(source))
    return LoadedRun(config, vocabulary, network, state)
