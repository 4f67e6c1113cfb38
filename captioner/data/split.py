"""Divide a set into splits by picture, the same way for the same seed, and write the result as a table."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from captioner.data.caption_set import CaptionSet, Item
from captioner.data.picture_files import same_pictures
from captioner.errors import CaptionerError, UsageError

VALIDATION = 0.1  # share of the pictures, where a set has no val split


def divide(items: Sequence[Item], shares: Mapping[str, float], *, seed: int) -> dict[str, tuple[Item, ...]]:
    """The items of each named split and of `train`, which gets the rest. Their order stays.

    A picture's hash with the seed decides, so new pictures move few of the old ones to another split. Files with the
    same content go into the same split: the same photo in train and val would make the scores too good.
    """
    if sum(shares.values()) >= 1:
        raise UsageError(
            f"{' + '.join(f'{share:g}' for share in shares.values())} of the pictures for {' and '.join(shares)} "
            "leave none for train; the sum must be less than 1"
        )
    groups = same_pictures([item.path for item in items])
    order = sorted(range(len(items)), key=lambda i: (_hash(groups[i], seed), i))
    counts = {split: max(1, round(share * len(items))) for split, share in shares.items()}
    if sum(counts.values()) >= len(items):
        raise CaptionerError(
            f"{len(items)} {'picture is' if len(items) == 1 else 'pictures are'} too few to be divided into train, "
            f"{', '.join(shares)}; add pictures with captions"
        )
    split_of = dict.fromkeys(range(len(items)), "train")
    position = 0
    for split, count in counts.items():
        end = position + count
        while position < len(order) and (position < end or groups[order[position]] == groups[order[position - 1]]):
            split_of[order[position]] = split
            position += 1
    result = {
        split: tuple(item for i, item in enumerate(items) if split_of[i] == split) for split in ("train", *shares)
    }
    if not result["train"]:
        raise CaptionerError("all pictures have the same content: they can't be divided into train and val")
    return result


def divided(captions: CaptionSet, shares: Mapping[str, float], *, seed: int) -> CaptionSet:
    """The set with its train split divided. Pictures of other splits stay there."""
    train = [item for item in captions if item.split == "train"]
    split_of = {item.id: split for split, part in divide(train, shares, seed=seed).items() for item in part}
    items = (dataclasses.replace(item, split=split_of.get(item.id, item.split)) for item in captions)
    return dataclasses.replace(captions, items=tuple(items))


def as_table(captions: CaptionSet, folder: Path) -> str:
    """The set as CSV with the columns image, caption and split. Pictures are named relative to `folder`."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("image", "caption", "split"))
    for item in captions:
        name = Path(os.path.relpath(item.path, folder)).as_posix()
        writer.writerows((name, caption, item.split) for caption in item.captions)
    return buffer.getvalue()


def _hash(picture: str, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{picture}".encode(), digest_size=8).digest()
