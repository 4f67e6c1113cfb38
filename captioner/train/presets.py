"""A config for a folder of photos: which model to start from, which settings, which part is for validation."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.bundle.layout import VOCABULARY
from captioner.bundle.loading import read_manifest
from captioner.bundle.model_folders import find_model
from captioner.data.caption_set import CaptionSet
from captioner.data.formats.detection import read_set
from captioner.data.picture_files import inspect_pictures
from captioner.data.split import VALIDATION
from captioner.errors import CaptionerError
from captioner.model.renames import current_settings
from captioner.options import SearchOptions
from captioner.progress import ProgressBar
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary
from captioner.train import config_file as configs
from captioner.train.config import SEARCH_DEFAULTS, Config

FEW_CAPTIONS = 5000  # below it, a model that knows language already is the better start
MANY_CAPTIONS = 50_000
UNKNOWN_WORDS = 0.2  # share of the words that a model may not know, to be a good start
SCRATCH = "scratch"

_ENCODER = {"name": "efficientnet_lite2", "size": 256, "annotations": ["stage6", "head"], "tail": "stage6"}
_MODEL = {"attention": {"size": 256}, "annotation_size": 512, "embedding_size": 384, "hidden_size": 512}


@dataclass(frozen=True)
class Preset:
    """A config, and what a person should know about the choice."""

    config: Config
    name: str  # of the data
    data: str  # what was found
    reason: str  # why this preset
    notes: tuple[str, ...]


def choose(
    data: Path,
    images: Path | None = None,
    *,
    start_from: str | None = None,
    name: str = "mine",
    changes: Sequence[str] = (),
) -> Preset:
    """The config for a data set. `start_from` is a model, "scratch", or None to choose by the size of the set."""
    everything = read_set(data, images, setting="DATA", images_setting="--images")
    whole = everything.captioned()
    if not whole.items:
        raise CaptionerError(
            f"{data}: no picture has a caption; put a .txt file of the same name beside each picture, or a table "
            "captions.csv with the columns image and caption into the folder"
        )
    _check_pictures(whole)
    source: dict[str, Any] = {"captions": str(data.absolute())}
    if images is not None:
        source["images"] = str(images.absolute())
    named = whole.rename_split("restval", "train")
    trained, split_notes = _trained_splits(named)
    part: dict[str, Any] = {"restval": True} if "restval" in whole.splits else {}
    captions = [caption for split in trained for caption in named.split(split).captions()]
    divided = "val" in named.splits and "val" not in trained
    model, reason, notes = _start(start_from, captions)
    settings = _fine_tuning(model, len(captions)) if model else _from_scratch(len(captions))
    raw: dict[str, Any] = {
        "name": name,
        "data": {
            "root": str(Path.cwd()),
            "train": [{**source, "split": split, **part} for split in trained],
            "val": [{**source, "split": "val"}] if divided else VALIDATION,
            "shuffle": True,  # so that fewer pictures have all subjects, also of a folder that is sorted by subject
            **settings.pop("data", {}),
        },
        **settings,
    }
    config = configs.parse(configs.changed(raw, changes), "the settings for this data")
    counts = [f"{len(whole.split(split)):,} {split}" for split in whole.splits]
    splits = ", ".join(counts) if divided else f"no {'train' if 'val' in trained else 'val'} split"
    found = (
        f"{whole.name}: {len(whole):,} images with {sum(len(item.captions) for item in whole):,} captions ({splits})"
    )
    bare = len(everything) - len(whole)
    if bare:
        notes = (f"{bare:,} of {len(everything):,} pictures have no caption and are left out", *notes)
    return Preset(config, whole.name, found, reason, (*whole.notes, *split_notes, *notes))


def differences(config: Config) -> dict[str, Any]:
    """The settings that are not defaults, as in a config file."""
    given: dict[str, Any] = config.model_dump(mode="json", exclude_defaults=True)
    search = given.get("training", {}).get("validation", {}).get("search")
    if search:  # a dataclass, which pydantic dumps completely
        options, plain = config.training.validation.search, SearchOptions(**SEARCH_DEFAULTS)
        given["training"]["validation"]["search"] = {
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(options)
            if getattr(options, field.name) != getattr(plain, field.name)
        }
    return given


def _trained_splits(whole: CaptionSet) -> tuple[list[str], tuple[str, ...]]:
    """The splits to train on, and notes. Without a train split these are all others, but never test."""
    trained = ["train"] if "train" in whole.splits else [split for split in whole.splits if split != "test"]
    if not trained:
        raise CaptionerError(
            f"{whole.name}: all pictures are in the split test, which is never trained on; name their split train"
        )
    notes = []
    if trained != ["train"]:
        notes.append(
            f"there is no train split, so the pictures of {' and '.join(trained)} are divided into train and val"
        )
    if "test" in whole.splits and not {"train", "val"} <= set(whole.splits):
        notes.append(f"the {len(whole.split('test')):,} pictures of test are left out: test is never trained on")
    return trained, tuple(notes)


def _check_pictures(captions: CaptionSet) -> None:
    """Refuse what would stop the training later: missing and unreadable pictures."""
    with ProgressBar("looking at the pictures") as progress:
        found = inspect_pictures((item.path for item in captions), progress=progress.show)
    problems = [*((path, "no such file") for path in found.missing), *found.unreadable]
    if problems:
        first = "; ".join(f"{path}: {reason}" for path, reason in problems[:3])
        raise CaptionerError(
            f"{len(problems):,} of {len(captions):,} pictures can't be used ({first}); remove them from the captions, "
            "or replace them. `captioner data check` lists all"
        )


def _start(wanted: str | None, captions: Sequence[str]) -> tuple[Path | None, str, tuple[str, ...]]:
    """The model to start from, the reason for it, and notes."""
    count = f"{len(captions):,} training captions"
    if wanted == SCRATCH:
        return None, f"train from scratch, as asked ({count})", ()
    if wanted is None and len(captions) >= FEW_CAPTIONS:
        return None, f"train from scratch: {count} are {FEW_CAPTIONS:,} or more", ()
    name = wanted or "default"
    folder = find_model(name)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    words = [word for caption in captions for word in tokenize(caption)]
    unknown = [word for word in words if word not in vocabulary]
    share = len(unknown) / max(1, len(words))
    rare = ", ".join([*dict.fromkeys(unknown)][:6])
    if wanted is None and share > UNKNOWN_WORDS:
        reason = f"train from scratch: the model {name} does not know {share:.0%} of the words ({rare})"
        return None, reason, ()
    why = "as asked" if wanted else f"fewer than {FEW_CAPTIONS:,}"
    notes = (
        (f"the model {name} does not know {share:.1%} of the words and will never say them: {rare}",) if unknown else ()
    )
    return folder, f"fine-tune the model {name} ({count}, {why})", notes


def _fine_tuning(model: Path, captions: int) -> dict[str, Any]:
    manifest = read_manifest(model)
    settings = current_settings(dict(manifest.settings))
    few = captions < 1000
    return {
        "encoder": settings["encoder"],
        "features": {"flip": True},
        "model": settings["model"],
        "training": {
            "start_from": str(model.absolute()),
            "epochs": 12 if few else 8,
            "images": 8 if few else 32,
            "optimizer": {"learning_rate": 0.0002, "weight_decay": 0.01, "clip": 5.0},
            "label_smoothing": 0.1,
            "ema": 0.99,
            # The tail has millions of weights: a few hundred captions would only make it remember the pictures.
            "tune": {"start_epoch": 1000 if few else 1, "learning_rate": 0.1, "depthwise": False},
            "validation": {"patience": 4, "search": configs.search_of_model(model)},
        },
    }


def _from_scratch(captions: int) -> dict[str, Any]:
    few, many = captions < FEW_CAPTIONS, captions >= MANY_CAPTIONS
    dropout = {"dropout": 0.3, "embedding_dropout": 0.1, "annotation_dropout": 0.1}
    if not many:
        dropout = {"dropout": 0.5, "embedding_dropout": 0.3, "annotation_dropout": 0.3}
    return {
        "data": {"minimum_count": 2 if few else 8 if many else 4},
        "encoder": _ENCODER,
        "features": {"flip": True},
        "model": {**_MODEL, **dropout},
        "training": {
            "epochs": 0 if few else 6 if many else 9,
            "optimizer": {"learning_rate": 0.0008, "weight_decay": 0.01, "clip": 10.0},
            "label_smoothing": 0.1,
            "ema": 0.99 if few else 0.999 if many else 0.995,
            "tune": {"start_epoch": 1000 if few else 1 if many else 4, "learning_rate": 0.2, "depthwise": False},
            "validation": {"patience": 5, "search": {"beam": 3, "repeat_penalty": 2.0}},
        },
    }
