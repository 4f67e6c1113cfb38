"""From a config to all that a run works on: data, words, network, grids, optimiser."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.data.sets import CaptionSet
from captioner.errors import CaptionerError
from captioner.model.network import Network, load_weights
from captioner.text import Vocabulary
from captioner.train import checkpoint
from captioner.train.bar import encoding_bar
from captioner.train.config import Config
from captioner.train.corpus import Corpus
from captioner.train.distributed import Team
from captioner.train.sources import CachedGrids, Grids, PixelGrids, open_features, read_split


@dataclass(frozen=True)
class Setup:
    """What a run works on; what changes as it goes is in the loop."""

    train_set: CaptionSet
    val_set: CaptionSet
    vocabulary: Vocabulary
    corpus: Corpus
    network: Network
    tail: list[nn.Parameter]  # of the encoder, that learn from some epoch on
    train_grids: Grids
    val_grids: Grids

    def learnt(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters of the decoder and the tail."""
        tail = {id(parameter) for parameter in self.tail}
        for name, parameter in self.network.named_parameters():
            if name.startswith("decoder.") or id(parameter) in tail:
                yield name, parameter


def prepare(config: Config, team: Team, vocabulary: Vocabulary | None = None) -> Setup:
    """Read the data, build the network, encode what is not yet cached. A resumed run brings its vocabulary."""
    settings = config.training
    train_set, val_set = read_split(config, "train"), read_split(config, "val")
    train_set = _first(train_set, settings.limit)
    val_set = _first(val_set, settings.validation.images)
    fresh = vocabulary is None
    if vocabulary is None and settings.start_from:  # the words must be those the weights know
        vocabulary = Vocabulary.load(_beside(settings.start_from.expanduser(), "vocabulary.json"))
    if vocabulary is None:
        vocabulary = Vocabulary.build(train_set.captions(), minimum_count=config.data.minimum_count)
    network = Network(config.encoder, config.model, len(vocabulary))
    if fresh and settings.start_from:
        load_weights(network, _weights_of(settings.start_from.expanduser()), str(settings.start_from))
    network.to(team.device)
    return Setup(
        train_set,
        val_set,
        vocabulary,
        Corpus.of(train_set, vocabulary, config.data.maximum_length),
        network,
        network.encoder.tune(settings.tune.from_stage) if config.encoder.tail else [],
        _grids(config, network, train_set, team, augment=settings.augment),
        _grids(config, network, val_set, team, augment=False),
    )


def make_optimizer(config: Config, setup: Setup) -> torch.optim.Optimizer:
    """The configured optimiser; a group's `share` is its part of the learning rate."""
    s = config.training.optimizer
    groups: list[dict[str, Any]] = [{"params": list(setup.network.decoder.parameters()), "share": 1.0}]
    if setup.tail:
        groups.append({"params": setup.tail, "share": config.training.tune.learning_rate})
    if s.name == "rmsprop":
        return torch.optim.RMSprop(groups, lr=s.learning_rate, weight_decay=s.weight_decay)
    kind = torch.optim.Adam if s.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=s.learning_rate, betas=s.betas, weight_decay=s.weight_decay)


def _grids(config: Config, network: Network, data: CaptionSet, team: Team, *, augment: bool) -> Grids:
    if network.encoder.cut == 0:
        return PixelGrids(network.encoder, data, augment=augment)
    if team.leads:  # one process encodes what is missing, the others then find it
        with encoding_bar() as show:
            open_features(config, network.encoder, data, device=team.device.type, progress=show)
    team.wait()
    return CachedGrids(open_features(config, network.encoder, data, device=team.device.type), data)


def _first(data: CaptionSet, count: int | None) -> CaptionSet:
    return dataclasses.replace(data, items=data.items[:count]) if count else data


def _beside(source: Path, name: str) -> Path:
    """A file of a run or bundle, given its folder or its best/ folder."""
    for folder in (source, source.parent):
        if (folder / name).is_file():
            return folder / name
    raise CaptionerError(f"training.start_from: {source} has no {name}; give a run's or a bundle's folder")


def _weights_of(source: Path) -> dict[str, Tensor]:
    for path in (source / "best" / "model.safetensors", source / "model.safetensors"):
        if path.is_file():
            return checkpoint.read(path)[0]
    raise CaptionerError(f"training.start_from: {source} has no best/model.safetensors nor model.safetensors")
