"""CaptionSet: pictures, their raw captions and their splits, independent of the file format."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import CaptionerError, UsageError, brief, nearest

_ORDER = ("train", "restval", "val", "test")
# Other names that data sets use for their splits.
_ALIASES = {"training": "train", "trn": "train", "valid": "val", "validation": "val", "dev": "val"}
_SPLIT_IN_NAME = re.compile(r"(?:^|[_.-])(train|training|restval|val|valid|validation|dev|test)(?:\d{4})?(?=[_.-]|$)")


def split_name(name: str) -> str:
    """The standard name of a split, in lower case: `dev` and `validation` become `val`."""
    name = name.strip().lower()
    return _ALIASES.get(name, name)


def split_of_file(path: Path) -> str | None:
    """The split in a file's name: val for captions_val2017.json. None if the name has no split or two."""
    splits = {split_name(name) for name in _SPLIT_IN_NAME.findall(path.stem.lower())}
    return splits.pop() if len(splits) == 1 else None


@dataclass(frozen=True, slots=True)
class Box:
    """The bounding box of an object, in pixels of the upright image."""

    label: str
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words of a caption that describe something in the picture, with its boxes."""

    tokens: tuple[str, ...]  # of the whole caption, as the file of phrases divides it
    first: int
    last: int  # one after the last token of the phrase
    boxes: tuple[Box, ...]  # empty if the phrase has none


@dataclass(frozen=True, slots=True)
class Item:
    """One picture. Its file may be missing: `captioner data check` and the feature cache report that."""

    id: int | str
    path: Path
    captions: tuple[str, ...]  # raw text of the file
    split: str
    boxes: tuple[Box, ...] = ()
    phrases: tuple[Phrase, ...] = ()  # of captions whose phrases have their own boxes


@dataclass(frozen=True)
class CaptionSet:
    """Items in a fixed order with unique ids."""

    name: str
    items: tuple[Item, ...]
    empty: tuple[str, ...] = ()  # splits that the source names but that have no items
    notes: tuple[str, ...] = ()  # one sentence for each thing that the reader left out or noticed

    def __post_init__(self) -> None:
        seen: set[int | str] = set()
        for item in self.items:
            if not isinstance(item.id, (int, str)):
                raise CaptionerError(f"{self.name}: the image id {brief(item.id)} is neither a number nor text")
            if item.id in seen:
                raise CaptionerError(f"{self.name}: the image id {item.id!r} occurs twice")
            seen.add(item.id)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that have items: train, restval, val, test, then others."""
        names = dict.fromkeys(item.split for item in self.items)
        return tuple(sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)))

    def split(self, name: str) -> CaptionSet:
        """The items of one split."""
        name = split_name(name)
        known = self.splits
        if name not in known:
            available = f"It has: {', '.join(known)}." if known else "It has no images."
            if name in self.empty:
                raise CaptionerError(f"the split {name!r} of {self.name} is empty. {available}")
            close = nearest(name, known)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"{self.name} has no split {name!r}.{hint} {available}")
        items = tuple(item for item in self.items if item.split == name)
        return dataclasses.replace(self, items=items, empty=())

    def rename_split(self, old: str, new: str) -> CaptionSet:
        """The set with one split renamed. Karpathy's `restval` is often used as `train`."""
        items = (dataclasses.replace(item, split=new) if item.split == old else item for item in self.items)
        return dataclasses.replace(self, items=tuple(items))

    def captions(self) -> Iterator[str]:
        """Every raw caption, in the order of the items."""
        for item in self.items:
            yield from item.captions

    def captioned(self) -> CaptionSet:
        """The set without blank captions and without items that have no other caption."""
        items = []
        for item in self.items:
            captions = tuple(caption for caption in item.captions if caption.strip())
            if captions:
                items.append(dataclasses.replace(item, captions=captions))
        return dataclasses.replace(self, items=tuple(items))


def combine(sets: Iterable[CaptionSet], *, name: str | None = None) -> CaptionSet:
    """Join several sets into one. Without `name`, the names of all sets are joined.

    If two sets share an id, every id becomes `set name/id`.
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
    splits = {item.split for item in items}
    empty = dict.fromkeys(split for part in parts for split in part.empty if split not in splits)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    name = name or "+".join(dict.fromkeys(part.name for part in parts))
    return CaptionSet(name, items, tuple(empty), tuple(notes))


def _distinct(names: list[str]) -> list[str]:
    """The names, with a number added to repeated ones: coco, coco-2."""
    result: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in result:
            number += 1
            candidate = f"{name}-{number}"
        result.append(candidate)
    return result
