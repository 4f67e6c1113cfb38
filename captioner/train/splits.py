"""The training and validation splits of a config."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from captioner.data.boxes import boxed_images, picture_key
from captioner.data.caption_set import CaptionSet, Item, combine
from captioner.data.formats.detection import read_set
from captioner.data.split import divide
from captioner.errors import CaptionerError, UsageError
from captioner.files import zip_paths
from captioner.files.atomic import write_atomically
from captioner.train.config import Config, SourceSettings


def read_splits(config: Config) -> tuple[CaptionSet, CaptionSet]:
    """The training and the validation split. Splits that share images are refused."""
    if isinstance(config.data.val, float):
        whole = _read(config, "train", config.data.train)
        parts = divide(whole.items, {"val": config.data.val}, seed=config.seed)
        train, val = (dataclasses.replace(whole, items=parts[split]) for split in ("train", "val"))
    else:
        train, val = _read(config, "train", config.data.train), _read(config, "val", config.data.val)
        _check_apart(train, val)
    return _ordered(config, train), _ordered(config, val)


def read_split(config: Config, which: str) -> CaptionSet:
    """The split `train` or `val`. Missing images are an error unless they are allowed."""
    if isinstance(config.data.val, float):
        return read_splits(config)[which == "val"]
    return _ordered(config, _read(config, which, config.data.train if which == "train" else config.data.val))


def limited(data: CaptionSet, count: int | None) -> CaptionSet:
    """The first images of a split; all without a count."""
    return dataclasses.replace(data, items=data.items[:count]) if count else data


def uncaptioned_images(config: Config, train: CaptionSet, val: CaptionSet) -> tuple[Item, ...]:
    """The images that train the auxiliary head only. They are in no split that the config's caption files name."""
    head = config.training.cell_categories
    if head is None or head.images is None:
        return ()
    known = {picture_key(item.path) for item in (*train, *val, *_other_splits(config))}
    items: dict[int | str, Item] = {}
    for number, file in enumerate(config.data.boxes):
        boxed = boxed_images(
            config.path(file),
            config.path(head.images),
            setting=f"data.boxes.{number}",
            images_setting="training.cell_categories.images",
        )
        items |= {key: item for item in boxed if (key := picture_key(item.path)) not in known}
    if not items:
        raise UsageError(
            f"training.cell_categories.images: {head.images} has no image with boxes in data.boxes that is in no split"
        )
    return tuple(items.values())


def _other_splits(config: Config) -> Iterator[Item]:
    """All images of the config's caption files, and of caption files beside them with val or test in their names."""
    sources = config.data.train if isinstance(config.data.val, float) else (*config.data.train, *config.data.val)
    for source in sources:
        path, images = config.path(source.captions), config.path(source.images) if source.images else None
        yield from read_set(path, images, format=source.format)
        for beside in sorted(path.parent.glob("captions_*.json")) if path.is_file() else ():
            if beside != path and ("val" in beside.name or "test" in beside.name):
                yield from read_set(beside, images)


def split_record(config: Config, train: CaptionSet, val: CaptionSet) -> dict[str, Any] | None:
    """Which images are in which split, if the run divided them itself."""
    if not isinstance(config.data.val, float):
        return None
    return {
        "share": config.data.val,
        "seed": config.seed,
        "train": [item.id for item in train],
        "val": [item.id for item in val],
    }


def write_split_record(path: Path, content: dict[str, Any]) -> None:
    """Write the record. A run that is resumed has one already, which must be the same."""
    if path.is_file():
        if json.loads(path.read_text(encoding="utf-8")) != content:
            raise CaptionerError(
                f"the images are not those of {path} any more, so the run can't be resumed; restore "
                "them, or start a new run"
            )
        return
    write_atomically(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _read(config: Config, which: str, sources: Sequence[SourceSettings]) -> CaptionSet:
    """The sources of a split, combined, without images that have no caption."""
    parts = []
    for i, source in enumerate(sources):
        part = read_set(
            config.path(source.captions),
            config.path(source.images) if source.images else None,
            format=source.format,
            split=source.split,
            restval=source.restval,
            setting=f"data.{which}.{i}.captions",
            images_setting=f"data.{which}.{i}.images",
        )
        parts.append(part)
    if not parts:
        raise CaptionerError(f"data.{which} lists no sources")
    data = (parts[0] if len(parts) == 1 else combine(parts, name=which)).captioned()
    missing = {item.id: item.path for item in data if not zip_paths.is_file(item.path)}
    if missing and not config.data.allow_missing:
        raise CaptionerError(
            f"data.{which}: {len(missing)} of {len(data)} images are missing, for example "
            f"{next(iter(missing.values()))}; "
            "see `captioner data check`, or set data.allow_missing=true"
        )
    items = tuple(item for item in data if item.id not in missing)
    if not items:
        reason = f": all {len(data)} are missing, for example {next(iter(missing.values()))}" if missing else ""
        raise CaptionerError(f"data.{which} has no image with captions{reason}")
    return dataclasses.replace(data, items=items)


def _ordered(config: Config, data: CaptionSet) -> CaptionSet:
    """The split in the order of its source, or with `data.shuffle` in a random one."""
    if not config.data.shuffle:
        return data

    def position(item: Item) -> bytes:  # images that are added later leave the order of the others
        return hashlib.blake2b(f"order:{config.seed}:{item.id}".encode(), digest_size=8).digest()

    return dataclasses.replace(data, items=tuple(sorted(data.items, key=position)))


def _check_apart(train: CaptionSet, val: CaptionSet) -> None:
    """Refuse splits that share images: validation scores would be too high."""
    shared = {item.path for item in train} & {item.path for item in val}
    if shared:
        raise CaptionerError(f"{len(shared)} images are in data.train and in data.val, for example {min(shared)}")
