"""The training and validation splits of a config."""

from __future__ import annotations

import dataclasses

from captioner.data.caption_set import CaptionSet, combine
from captioner.data.formats.detection import read_set
from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.train.config import Config


def read_split(config: Config, which: str) -> CaptionSet:
    """The sources of `train` or `val`, combined. Missing images are an error unless they are allowed."""
    sources = config.data.train if which == "train" else config.data.val
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


def check_apart(train: CaptionSet, val: CaptionSet) -> None:
    """Refuse splits that share images: validation scores would be too high."""
    shared = {item.path for item in train} & {item.path for item in val}
    if shared:
        raise CaptionerError(f"{len(shared)} images are in data.train and in data.val, for example {min(shared)}")
