"""From a config to all that a run works on: data, words, network, grids, optimiser."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.bundle.storage import MANIFEST, WEIGHTS, read_manifest
from captioner.data.caption_set import CaptionSet
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.model.encoder import Encoder
from captioner.model.network import Network
from captioner.model.renames import current_settings
from captioner.model.weights import load_weights
from captioner.text.vocabulary import Vocabulary
from captioner.train import checkpoint
from captioner.train import config as configs
from captioner.train.config import Config
from captioner.train.corpus import Corpus
from captioner.train.distributed import World
from captioner.train.grids import (
    CachedGrids,
    Grids,
    PixelGrids,
    check_apart,
    encoding_progress,
    open_features,
    read_split,
)

# Settings with any value of which weights fit all the same; so do those of dropout.
SHAPELESS = {
    *("encoder.weights", "encoder.size", "encoder.tail"),
    *(f"model.attention.{name}" for name in ("mode", "temperature", "width", "relaxation")),
}


@dataclass(frozen=True)
class TrainingSetup:
    """What a run works on; what changes as it goes is in the loop.

    Of the training captions the numbers alone are kept: as text they would take most of the memory.
    """

    val_set: CaptionSet
    vocabulary: Vocabulary
    corpus: Corpus
    network: Network
    tail: list[nn.Parameter]  # of the encoder, that learn from some epoch on
    learnt: dict[str, nn.Parameter]  # the decoder's and the tail's
    train_grids: Grids
    val_grids: Grids


@dataclass(frozen=True)
class InitialWeights:
    """Words and weights that a run begins with: those of the run it goes on with, or of `start_from`."""

    vocabulary: Vocabulary
    weights: dict[str, Tensor]
    source: Path


def prepare(config: Config, world: World, resumed: InitialWeights | None = None) -> TrainingSetup:
    """Read the data, build the network, encode what is not yet cached."""
    settings = config.training
    train_set, val_set = read_split(config, "train"), read_split(config, "val")
    check_apart(train_set, val_set)
    train_set = _first(train_set, settings.limit)
    val_set = _first(val_set, settings.validation.images)
    origin = resumed or (start_from(settings.start_from.expanduser()) if settings.start_from else None)
    if origin is None:
        vocabulary = Vocabulary.build(train_set.captions(), minimum_count=config.data.minimum_count)
        network = Network(config.encoder, config.model, len(vocabulary))
    else:  # before the features: the trunk's weights, which made them, are among these
        vocabulary, network = origin.vocabulary, _loaded(config, origin)
    network.to(world.device)
    tail = _tail(config, network)
    return TrainingSetup(
        val_set,
        vocabulary,
        Corpus.of(train_set, vocabulary, config.data.max_length),
        network,
        tail,
        {name: p for name, p in network.named_parameters() if p.requires_grad},
        _grids(config, network, train_set, world),
        _grids(config, network, val_set, world),
    )


def first_encoder(config: Config) -> Encoder:
    """The encoder that a run of this config begins with: its trunk makes the features."""
    source = config.training.start_from
    if source is None:
        return Encoder(config.encoder)
    return _loaded(config, start_from(source.expanduser())).encoder


def make_optimizer(config: Config, setup: TrainingSetup) -> torch.optim.Optimizer:
    """The configured optimiser; a group's `share` is its part of the learning rate."""
    s = config.training.optimizer
    groups: list[dict[str, Any]] = [{"params": list(setup.network.decoder.parameters()), "share": 1.0}]
    if setup.tail:
        groups.append({"params": setup.tail, "share": config.training.tune.learning_rate})
    if s.name == "rmsprop":
        return torch.optim.RMSprop(groups, lr=s.learning_rate, weight_decay=s.weight_decay)
    kind = torch.optim.Adam if s.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=s.learning_rate, betas=s.betas, weight_decay=s.weight_decay, fused=True)


def _loaded(config: Config, origin: InitialWeights) -> Network:
    network = Network(config.encoder, config.model, len(origin.vocabulary), load=False)
    try:
        load_weights(network, origin.weights, str(origin.source))
    except CaptionerError:
        if others := _other_settings(config, origin.source):
            raise UsageError(f"{origin.source} does not fit the model: it was made with {', '.join(others)}") from None
        raise
    return network


def _other_settings(config: Config, weights: Path) -> list[str]:
    """The settings that may shape weights and that a bundle or run has otherwise than the config, as --set takes them.

    None where they can't be told.
    """
    home = weights.parent.parent if weights.parent.name == "best" else weights.parent
    try:
        if (home / MANIFEST).is_file():
            made = current_settings(read_manifest(home).settings)
        else:
            made = configs.load(home / "config.yaml").model_dump(mode="json")
    except CaptionerError:
        return []
    ours = config.model_dump(mode="json")
    theirs, own = ({**_flat("encoder", s["encoder"]), **_flat("model", s["model"])} for s in (made, ours))
    named = [key for key in theirs if key not in SHAPELESS and not key.endswith("dropout")]
    return [f"{key}={json.dumps(theirs[key])}" for key in named if key in own and theirs[key] != own[key]]


def _flat(name: str, values: Any) -> dict[str, Any]:
    """A section's settings by their dotted names."""
    if not isinstance(values, dict):
        return {name: values}
    return {key: value for k, v in values.items() for key, value in _flat(f"{name}.{k}", v).items()}


def _grids(config: Config, network: Network, data: CaptionSet, world: World) -> Grids:
    if network.encoder.cut == 0:
        if config.training.crop < 1:
            raise UsageError(
                f"training.crop={config.training.crop} is of cached grids, and encoder.tail={config.encoder.tail} "
                "caches none; set training.crop=1 (training.augment crops pixels)"
            )
        return PixelGrids(network.encoder, data, augment=config.training.augment)
    if world.is_main:  # one process encodes what is missing, the others then find it
        with encoding_progress() as progress:
            open_features(config, network.encoder, data, device=world.device.type, progress=progress.show)
    world.wait()
    cache = open_features(config, network.encoder, data, device=world.device.type)
    return CachedGrids(cache, data, crop=config.training.crop)


def _tail(config: Config, network: Network) -> list[nn.Parameter]:
    """Parameters of the encoder that learn, at some epoch or other."""
    stage, encoder = config.training.tune.from_stage, network.encoder
    if not config.encoder.tail:
        return []
    if stage is not None and stage not in encoder.order:
        raise unknown(f"stage of {config.encoder.name} (training.tune.from_stage)", stage, encoder.order)
    return encoder.tune(stage, depthwise=config.training.tune.depthwise)


def _first(data: CaptionSet, count: int | None) -> CaptionSet:
    return dataclasses.replace(data, items=data.items[:count]) if count else data


def start_from(source: Path) -> InitialWeights:
    """The best weights of a run, or those of a bundle, by its folder; the words are those the weights know."""
    home = source.parent if source.name == "best" else source
    words, weights = home / "vocabulary.json", home / "best" / WEIGHTS
    if not weights.is_file():
        weights = home / WEIGHTS
    for file in (words, weights):
        if not file.is_file():
            raise UsageError(
                f"training.start_from: {source} has no {file.name}; give the folder of a bundle, or of a run that has "
                "been validated"
            )
    return InitialWeights(Vocabulary.load(words), checkpoint.read(weights)[0], weights)
