"""From a config to what a run trains and reads: data, vocabulary, network, grids, optimizer.

The trunk is the frozen stages of the encoder, whose output is cached. The tail is the stages after them, which a run
may train.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.bundle.layout import MANIFEST, WEIGHTS
from captioner.bundle.loading import load_bundle, read_manifest
from captioner.bundle.model_folders import start_folder
from captioner.data.boxes import with_boxes
from captioner.data.caption_set import CaptionSet
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.model.encoder import Encoder
from captioner.model.network import Network
from captioner.model.renames import current_settings
from captioner.model.weights import bundle_tensors, load_weights
from captioner.terminal import say
from captioner.text.vocabulary import SPECIAL, Vocabulary
from captioner.train import checkpoint
from captioner.train import config_file as configs
from captioner.train.box_targets import BoxTargets
from captioner.train.cell_categories import CellCategories
from captioner.train.config import Config
from captioner.train.corpus import Corpus
from captioner.train.distributed import World
from captioner.train.grids import CachedGrids, Grids, PixelGrids, encoding_progress, open_features
from captioner.train.run_folder import RunFolder, model_folder
from captioner.train.splits import limited, read_splits, split_record, uncaptioned_images

# Settings that don't change the shapes of the weights. Those of dropout don't either.
SHAPELESS = {
    *("encoder.weights", "encoder.size", "encoder.tail", "encoder.pyramid.heads"),
    *(f"model.attention.{name}" for name in ("mode", "normalizer", "temperature", "width", "relaxation")),
}


@dataclass(frozen=True)
class TrainingSetup:
    """What a run trains and reads.

    Training captions are kept as numbers only: as text they would take most of the memory.
    """

    val_set: CaptionSet
    vocabulary: Vocabulary
    corpus: Corpus
    uncaptioned: range  # positions of the images without captions, after those of the corpus
    network: Network
    tail: list[nn.Parameter]  # trained from epoch training.tune.start_epoch on
    trainable: dict[str, nn.Parameter]  # of the decoder, the encoder's pyramid and the tail
    train_grids: Grids
    val_grids: Grids
    division: dict[str, Any] | None  # which images are in which split, if the run divided them itself
    box_targets: BoxTargets | None  # if boxes train anything
    cell_head: CellCategories | None  # trained from the first epoch on


@dataclass(frozen=True)
class InitialWeights:
    """The vocabulary and weights that a run starts with: of the run that is resumed, or of `training.start_from`."""

    vocabulary: Vocabulary
    weights: dict[str, Tensor]
    source: Path
    cell_head: dict[str, Tensor] | None = None  # of a run that is resumed, if it has one

    @classmethod
    def of_checkpoint(cls, run_folder: RunFolder, tensors: dict[str, Tensor]) -> InitialWeights:
        """Those of a run that is resumed."""
        return cls(
            Vocabulary.load(run_folder.vocabulary),
            checkpoint.part(tensors, "network"),
            run_folder.checkpoint,
            checkpoint.part(tensors, "cell_head"),
        )

    @classmethod
    def of_model(cls, path: Path) -> InitialWeights:
        """The best weights of a run, or the weights of a bundle, by its folder or by the model's name."""
        path = start_folder(path)
        if (path / MANIFEST).is_file():
            bundle = load_bundle(path)  # verifies every file before its weights are used
            return cls(bundle.vocabulary, bundle_tensors(bundle), bundle.path(WEIGHTS))
        run_folder = RunFolder(model_folder(path))
        for file in (run_folder.vocabulary, run_folder.best_weights):
            if not file.is_file():
                raise UsageError(
                    f"training.start_from: {path} has no {file.name}; give the folder of a bundle, or of a run that "
                    "has been validated"
                )
        weights = run_folder.best_weights
        return cls(Vocabulary.load(run_folder.vocabulary), checkpoint.read(weights)[0], weights)


def prepare(config: Config, world: World, resumed: InitialWeights | None = None) -> TrainingSetup:
    """Read the data, build the network, and encode the images that are not yet in the feature cache."""
    settings = config.training
    train_set, val_set = read_splits(config)
    division = split_record(config, train_set, val_set)
    uncaptioned = uncaptioned_images(config, train_set, val_set)[: settings.limit]
    if uncaptioned and world.is_main:
        say(f"{len(uncaptioned):,} images without captions train the auxiliary head")
    train_set = limited(train_set, settings.limit)
    val_set = limited(val_set, settings.validation.images)
    initial = resumed or (InitialWeights.of_model(settings.start_from) if settings.start_from else None)
    if initial is None:
        vocabulary = Vocabulary.build(train_set.captions(), minimum_count=config.data.minimum_count)
        if len(vocabulary) == len(SPECIAL):
            raise CaptionerError(
                f"no word of data.train occurs {config.data.minimum_count} times, so every word would be "
                "unknown; lower data.minimum_count"
            )
        network = Network(config.encoder, config.model, len(vocabulary))
    else:  # loaded before the features are: their trunk is part of these weights
        vocabulary, network = initial.vocabulary, _network(config, initial)
    network.to(world.device)
    corpus = Corpus.of(train_set, vocabulary, config.data.max_length)
    images = dataclasses.replace(train_set, items=train_set.items + uncaptioned)
    box_targets = _box_targets(config, images, corpus, vocabulary)
    return TrainingSetup(
        val_set=val_set,
        vocabulary=vocabulary,
        corpus=corpus,
        uncaptioned=range(len(corpus), len(images)),
        network=network,
        tail=tune_tail(config, network),
        trainable={name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad},
        train_grids=_grids(config, network, images, world),
        val_grids=_grids(config, network, val_set, world),
        division=division,
        box_targets=box_targets,
        cell_head=_cell_head(config, network, box_targets, initial, world),
    )


def initial_encoder(config: Config) -> Encoder:
    """The encoder that a run with this config starts with. Its trunk computes the features."""
    source = config.training.start_from
    if source is None:
        return Encoder(config.encoder)
    return _network(config, InitialWeights.of_model(source)).encoder


def make_optimizer(config: Config, setup: TrainingSetup) -> torch.optim.Optimizer:
    """The configured optimizer. The learning rate of a group is multiplied with its `lr_factor`."""
    s = config.training.optimizer
    network = setup.network
    parameters = [*network.decoder.parameters()]
    if network.encoder.pyramid is not None:
        parameters += network.encoder.pyramid.parameters()
    groups: list[dict[str, Any]] = [{"params": parameters, "lr_factor": 1.0}]
    if setup.tail:
        groups.append({"params": setup.tail, "lr_factor": config.training.tune.learning_rate})
    if setup.cell_head is not None:
        groups.append({"params": list(setup.cell_head.parameters()), "lr_factor": 1.0})
    if s.name == "rmsprop":
        return torch.optim.RMSprop(groups, lr=s.learning_rate, weight_decay=s.weight_decay)
    kind = torch.optim.Adam if s.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=s.learning_rate, betas=s.betas, weight_decay=s.weight_decay, fused=True)


def _network(config: Config, initial: InitialWeights) -> Network:
    network = Network(config.encoder, config.model, len(initial.vocabulary), load=False)
    try:
        load_weights(network, initial.weights, str(initial.source))
    except CaptionerError:
        if differences := _differences(config, initial.source):
            raise UsageError(
                f"{initial.source} does not fit the model: it was built with {', '.join(differences)}"
            ) from None
        raise
    return network


def _differences(config: Config, weights: Path) -> list[str]:
    """Settings of the weights' bundle or run that shape them and differ from the config, as --set takes them."""
    run_folder = RunFolder(model_folder(weights.parent))
    try:
        if (run_folder.path / MANIFEST).is_file():
            settings = current_settings(read_manifest(run_folder.path).settings)
        else:
            settings = configs.load(run_folder.config).model_dump(mode="json")
    except CaptionerError:
        return []
    of_weights, of_config = (
        {**_flat("encoder", {"pyramid": None, **s["encoder"]}), **_flat("model", s["model"])}
        for s in (settings, config.model_dump(mode="json"))
    )
    shaping = [key for key in of_weights if key not in SHAPELESS and not key.endswith("dropout")]
    sections = {key.rpartition(".")[0] for key in of_config}
    return [
        f"{key}={json.dumps(of_weights[key])}"
        for key in shaping
        # A section may be absent on one side: null there, and several settings on the other.
        if key in sections
        or of_config.get(key.rpartition(".")[0], 0) is None
        or (key in of_config and of_weights[key] != of_config[key])
    ]


def _flat(name: str, values: Any) -> dict[str, Any]:
    """The settings of a section by their dotted names."""
    if not isinstance(values, dict):
        return {name: values}
    return {key: value for k, v in values.items() for key, value in _flat(f"{name}.{k}", v).items()}


def _grids(config: Config, network: Network, data: CaptionSet, world: World) -> Grids:
    if not network.encoder.has_trunk:
        if config.training.crop < 1:
            raise UsageError(
                f"training.crop={config.training.crop} crops cached grids, but encoder.tail={config.encoder.tail} "
                "caches none; set training.crop=1 (training.augment crops pixels)"
            )
        return PixelGrids(network.encoder, data, augment=config.training.augment)
    if world.is_main:  # encodes the missing images; the other processes then find them in the cache
        with encoding_progress() as progress:
            open_features(config, network.encoder, data, device=world.device.type, progress=progress.show)
    world.barrier()
    cache = open_features(config, network.encoder, data, device=world.device.type)
    return CachedGrids(cache, data, grid=network.encoder.grid(), crop=config.training.crop)


def _box_targets(config: Config, images: CaptionSet, corpus: Corpus, vocabulary: Vocabulary) -> BoxTargets | None:
    """The boxes of the training images, if a setting uses them."""
    if not config.uses_of_boxes:
        return None
    for number, file in enumerate(config.data.boxes):
        images = with_boxes(images, config.path(file), setting=f"data.boxes.{number}")
    if config.training.scst and config.training.scst.reward.uses_boxes and any(item.phrases for item in images):
        raise UsageError(
            "training.scst.reward.objects needs all objects of a photo, but data.boxes has phrases, which name only "
            "what their captions mention; set training.scst.reward.objects and training.scst.reward.invented to 0"
        )
    return BoxTargets.of(images, corpus, vocabulary)


def _cell_head(
    config: Config,
    network: Network,
    targets: BoxTargets | None,
    initial: InitialWeights | None,
    world: World,
) -> CellCategories | None:
    if targets is None or config.training.cell_categories is None:
        return None
    head = CellCategories(network.encoder.size, len(targets.labels))
    if initial is not None and initial.cell_head:
        try:
            head.load_state_dict(initial.cell_head)
        except RuntimeError:
            raise CaptionerError(
                f"the auxiliary head of {initial.source} has other categories than data.boxes, which has "
                f"{len(targets.labels)}; use the boxes that the run was started with"
            ) from None
    return head.to(world.device)


def tune_tail(config: Config, network: Network) -> list[nn.Parameter]:
    """Make the tail of the encoder trainable, and return the parameters that are trained from some epoch on."""
    stage, encoder = config.training.tune.from_stage, network.encoder
    if not config.encoder.tail:
        return []
    if stage is not None and stage not in encoder.order:
        raise unknown(f"stage of {config.encoder.name} (training.tune.from_stage)", stage, encoder.order)
    return encoder.tune(stage, depthwise=config.training.tune.depthwise)
