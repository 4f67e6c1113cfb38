"""Data sets for the benchmark: real or drawn pictures, and generated captions with empty feature files."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

from captioner.data.caption_set import CaptionSet, Item
from captioner.data.formats.detection import read_set
from captioner.data.shapes import write_shapes
from captioner.model.encoder import Encoder
from captioner.text.vocabulary import SPECIAL, Vocabulary
from captioner.train import features
from captioner.train.config import Config
from training_benchmark.sizes import QUICK, Sizes

DATA = Path(os.environ.get("CAPTIONER_DATA", "data"))
SHARD = 1024  # images per feature file


def write_captioned_pictures(folder: Path, sizes: Sizes) -> None:
    """Write captions.json, val.json and images/: pictures of COCO, or drawn shapes, with equally many captions each."""
    if (folder / "captions.json").exists():
        return
    source = DATA / "coco" / "val_500"
    source_is_used = sizes is not QUICK and source.is_dir()
    if source_is_used:
        content = json.loads((DATA / "coco" / "captions_val.json").read_text(encoding="utf-8"))
        names = {path.name for path in source.iterdir()}
        images = [image for image in content["images"] if image["file_name"] in names]
        (folder / "images").symlink_to(source)
    else:
        # A fifth of the drawn pictures is not in the training split, which is divided below.
        write_shapes(folder, sizes.pictures * 5 // 4 + 20, size=sizes.picture_size, overwrite=True)
        content = json.loads((folder / "captions_train.json").read_text(encoding="utf-8"))
        images = content["images"]
    captions_of: dict[int, list[Any]] = {}
    for caption in content["annotations"]:
        captions_of.setdefault(caption["image_id"], []).append(caption)
    if not source_is_used:  # drawn pictures have fewer captions: they come again
        captions_of = {image: list(islice(cycle(own), sizes.captions_per_image)) for image, own in captions_of.items()}
    images = [image for image in images if len(captions_of[image["id"]]) >= sizes.captions_per_image]
    splits = {"captions": images[: sizes.pictures], "val": images[sizes.pictures : sizes.pictures + 8]}
    for name, split in splits.items():
        captions = [caption for image in split for caption in captions_of[image["id"]][: sizes.captions_per_image]]
        (folder / f"{name}.json").write_text(json.dumps({"images": split, "annotations": captions}))


def padded_vocabulary(captions: Path, size: int) -> Vocabulary:
    """The words of the captions, filled up with words that never occur to the size that a large data set has."""
    occurring = Vocabulary.build(read_set(captions, captions.parent / "images").captions(), minimum_count=1)
    words = occurring.words[:size]
    return Vocabulary((*words, *(f"word{i}" for i in range(size - len(words)))))


def generated_vocabulary(size: int) -> Vocabulary:
    return Vocabulary((*SPECIAL, *(f"w{i}" for i in range(size - len(SPECIAL)))))


def generated_captions(count: int, split: str) -> CaptionSet:
    """Images that don't exist, with five captions each. Word frequencies follow Zipf's law, as in real text."""
    generator = np.random.default_rng(0)
    items = []
    for i in range(count):
        lengths = np.clip(generator.normal(10.5, 2.3, 5), 6, 20).astype(int)
        captions = tuple(" ".join(f"w{w % 6000}" for w in generator.zipf(1.3, length)) for length in lengths)
        items.append(Item(f"{split}-{i}", Path(f"{split}-{i}.jpg"), captions, split))
    return CaptionSet(split, tuple(items))


def write_empty_features(config: Config, data_sets: list[CaptionSet]) -> int:
    """Write feature files for generated images and return their size. The files are sparse: they use almost no disk."""
    spec = features.FeatureSpec.of(Encoder(config.encoder), flip=False)
    cache = features.cache_folder(config.features.folder, spec)
    cache.mkdir(parents=True)
    (cache / "cache.json").write_text(json.dumps(asdict(spec)))
    names = [item.path.name for data_set in data_sets for item in data_set.items]
    total = 0
    for number, start in enumerate(range(0, len(names), SHARD)):
        shard = names[start : start + SHARD]
        path = cache / f"{number:05d}.npy"
        np.lib.format.open_memmap(path, "w+", np.float16, (len(shard), 1, *spec.shape)).flush()
        path.with_suffix(".json").write_text(json.dumps(shard))
        total += path.stat().st_size
    return total
