"""CaptionSet: pictures, their raw captions and their splits, whatever file they came from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import CaptionerError, UsageError, nearest

_ORDER = ("train", "restval", "val", "test")
# Other names under which data sets publish their splits.
_ALIASES = {"training": "train", "trn": "train", "valid": "val", "validation": "val", "dev": "val"}
_SPLIT_IN_NAME = re.compile(r"(?:^|[_.-])(train|training|restval|val|valid|validation|dev|test)(?:\d{4})?(?=[_.-]|$)")


def split_name(name: str) -> str:
    """The name a split goes by here: `dev` and `validation` are `val`, whatever the case."""
    name = name.strip().lower()
    return _ALIASES.get(name, name)


def split_of_file(path: Path) -> str | None:
    """The split that a file's name tells: captions_val2017.json is val; none where it tells two."""
    found = {split_name(name) for name in _SPLIT_IN_NAME.findall(path.stem.lower())}
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Box:
    """An object's place, in pixels of the upright image."""

    label: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Item:
    """One picture. The file need not exist: `captioner data check` and the feature cache see to that."""

    id: int | str
    path: Path
    captions: tuple[str, ...]  # raw text, as the file has it
    split: str
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True)
class CaptionSet:
    """Items in a fixed order; ids are unique."""

    name: str
    items: tuple[Item, ...]
    empty: tuple[str, ...] = ()  # splits that the source names but has nothing for
    notes: tuple[str, ...] = ()  # what the reader left out or found odd, a sentence each

    def __post_init__(self) -> None:
        seen: set[int | str] = set()
        for item in self.items:
            if item.id in seen:
                raise CaptionerError(f"{self.name}: the image id {item.id!r} is there twice")
            seen.add(item.id)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that hold something: the usual ones in their usual order, then others."""
        found = dict.fromkeys(item.split for item in self.items)
        return tuple(sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)))

    def split(self, name: str) -> CaptionSet:
        """The items of one split."""
        name = split_name(name)
        known = self.splits
        if name not in known:
            there = f"It has: {', '.join(known)}." if known else "It holds no images at all."
            if name in self.empty:
                raise CaptionerError(f"the split {name!r} of {self.name} is empty. {there}")
            close = nearest(name, known)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"{self.name} has no split {name!r}.{hint} {there}")
        items = tuple(item for item in self.items if item.split == name)
        return dataclasses.replace(self, items=items, empty=())

    def rename_split(self, old: str, new: str) -> CaptionSet:
        """The set with one split counted as another, as `restval` often is as `train`."""
        items = (dataclasses.replace(item, split=new) if item.split == old else item for item in self.items)
        return dataclasses.replace(self, items=tuple(items))

    def captions(self) -> Iterator[str]:
        """Every raw caption, in the order of the items."""
        for item in self.items:
            yield from item.captions

    def captioned(self) -> CaptionSet:
        """What can be trained on: blank captions left out, and the items that then have none."""
        items = []
        for item in self.items:
            kept = tuple(caption for caption in item.captions if caption.strip())
            if kept:
                items.append(item if len(kept) == len(item.captions) else dataclasses.replace(item, captions=kept))
        return dataclasses.replace(self, items=tuple(items))

    def __add__(self, other: CaptionSet) -> CaptionSet:
        """Both sets as one; where an id is in both, all ids become `name/id`."""
        return combine((self, other))


def combine(sets: Iterable[CaptionSet], *, name: str | None = None) -> CaptionSet:
    """Several sets as one, named after all of them unless told.

    Where an id is in two of them, every id becomes `set name/id`.
    """
    parts = list(sets)
    ids = [item.id for part in parts for item in part.items]
    if len(set(ids)) < len(ids):
        parts = [
            dataclasses.replace(
                part,
                items=tuple(dataclasses.replace(item, id=f"{prefix}/{item.id}") for item in part.items),
            )
            for part, prefix in zip(parts, _distinct([part.name for part in parts]), strict=True)
        ]
    items = tuple(item for part in parts for item in part.items)
    held = {item.split for item in items}
    empty = dict.fromkeys(split for part in parts for split in part.empty if split not in held)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    name = name or "+".join(dict.fromkeys(part.name for part in parts))
    return CaptionSet(name, items, tuple(empty), tuple(notes))


def _distinct(names: list[str]) -> list[str]:
    """The names, numbered where they repeat: coco, coco-2."""
    result: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in result:
            number += 1
            candidate = f"{name}-{number}"
        result.append(candidate)
    return result
