"""What is evaluated: a split with references for every image, nothing left out without a word."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from captioner.data.caption_set import CaptionSet
from captioner.data.formats.detection import read_set
from captioner.errors import CaptionerError


@dataclass(frozen=True)
class EvaluationSet:
    """The images to caption; what was left out is in `notes`, a sentence each."""

    captions: CaptionSet
    split: str
    training: tuple[str, ...] | None  # raw training captions, where they are at hand
    boxed: bool
    notes: tuple[str, ...]


def read_evaluation_set(
    data: Path,
    split: str,
    *,
    images: Path | None = None,
    format: str | None = None,
    limit: int | None = None,
    boxes: Path | None = None,
    train_captions: Path | None = None,
    allow_missing: bool = False,
) -> EvaluationSet:
    """Read a split, its boxes and the training captions."""
    whole = read_set(data, images, format=format, name=None, setting="--data", images_setting="--images")
    if split not in whole.splits and data.is_file():  # a single COCO file whose name tells no split is what is asked
        whole = read_set(data, images, format=format, split=split, setting="--data", images_setting="--images")
    chosen = whole.split(split)
    notes = list(chosen.notes)
    held = chosen.captioned()
    if len(held) < len(chosen):
        notes.append(f"{len(chosen) - len(held):,} of {len(chosen):,} images have no reference and were left out")
    if not len(held):
        raise CaptionerError(f"{data}: none of the {len(chosen):,} images of {split} has a reference caption")
    if limit is not None and limit < len(held):
        notes.append(f"the first {limit:,} of {len(held):,} images (--limit)")
        held = dataclasses.replace(held, items=held.items[:limit])
    held = _present(held, split, allow_missing, notes)
    if boxes is not None:
        from captioner.data.boxes import with_boxes

        held = with_boxes(held, boxes, setting="--boxes")
        without = sum(not item.boxes for item in held)
        if without:
            notes.append(f"{without:,} of {len(held):,} images have no box: they are not in the figures about boxes")
    return EvaluationSet(held, split, _training(whole, train_captions), boxes is not None, tuple(notes))


def _present(held: CaptionSet, split: str, allow_missing: bool, notes: list[str]) -> CaptionSet:
    missing = [item for item in held if not item.path.is_file()]
    if not missing:
        return held
    counts = f"{len(missing):,} of {len(held):,} pictures of {split} are missing"
    if not allow_missing or len(missing) == len(held):
        raise CaptionerError(
            f"{counts}, the first is {missing[0].path}; give their folder with --images"
            + ("" if len(missing) == len(held) else ", or leave them out with --allow-missing")
        )
    notes.append(f"{counts} and were left out: the scores are not comparable with those of the whole split")
    gone = {item.id for item in missing}
    return dataclasses.replace(held, items=tuple(item for item in held if item.id not in gone))


def _training(whole: CaptionSet, train_captions: Path | None) -> tuple[str, ...] | None:
    """From the file given, or the data's own train split."""
    if train_captions is not None:
        other = read_set(train_captions, setting="--train-captions")
        return tuple(other.split("train").captions() if "train" in other.splits else other.captions())
    return tuple(whole.split("train").captions()) if "train" in whole.splits else None
