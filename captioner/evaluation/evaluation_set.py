"""The split to evaluate. Every image has references; everything that was left out is in the notes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from captioner.data.caption_set import CaptionSet
from captioner.data.formats.detection import read_set
from captioner.errors import CaptionerError, UsageError
from captioner.files import zip_paths


@dataclass(frozen=True)
class EvaluationSet:
    """The images to caption. `notes` has one sentence for each thing that was left out."""

    captions: CaptionSet
    split: str
    training: tuple[str, ...] | None  # raw training captions, if known
    boxed: bool
    notes: tuple[str, ...]


def read_evaluation_set(
    data: Path,
    split: str,
    *,
    images: Path | None = None,
    format: str | None = None,
    limit: int | None = None,
    offset: int = 0,
    boxes: Path | None = None,
    train_captions: Path | None = None,
    allow_missing: bool = False,
) -> EvaluationSet:
    """Read a split, its boxes and the training captions."""
    whole = read_set(data, images, format=format, name=None, setting="--data", images_setting="--images")
    if split not in whole.splits and data.is_file():  # a COCO file without a split in its name
        whole = read_set(data, images, format=format, split=split, setting="--data", images_setting="--images")
    listed = whole.split(split)
    notes = list(listed.notes)
    captions = listed.captioned()
    if len(captions) < len(listed):
        notes.append(f"{len(listed) - len(captions):,} of {len(listed):,} images have no reference and were left out")
    if not len(captions):
        raise CaptionerError(f"{data}: none of the {len(listed):,} images of {split} has a reference caption")
    end = len(captions) if limit is None else min(offset + limit, len(captions))
    if offset >= len(captions):
        raise UsageError(f"--offset {offset} leaves no image: {split} has {len(captions):,}")
    if end - offset < len(captions):
        notes.append(f"images {offset + 1:,} to {end:,} of {len(captions):,} (--offset, --limit)")
        captions = dataclasses.replace(captions, items=captions.items[offset:end])
    captions = _without_missing_files(captions, split, allow_missing, notes)
    if boxes is not None:
        from captioner.data.boxes import with_boxes

        captions = with_boxes(captions, boxes, setting="--boxes")
        unboxed = sum(not item.boxes for item in captions)
        if unboxed:
            notes.append(f"{unboxed:,} of {len(captions):,} images have no box: not in the figures about boxes")
    return EvaluationSet(captions, split, _training(whole, train_captions), boxes is not None, tuple(notes))


def _without_missing_files(captions: CaptionSet, split: str, allow_missing: bool, notes: list[str]) -> CaptionSet:
    missing = [item for item in captions if not zip_paths.is_file(item.path)]
    if not missing:
        return captions
    counts = f"{len(missing):,} of {len(captions):,} pictures of {split} are missing"
    if not allow_missing or len(missing) == len(captions):
        raise CaptionerError(
            f"{counts}, the first is {missing[0].path}; give their folder with --images"
            + ("" if len(missing) == len(captions) else ", or leave them out with --allow-missing")
        )
    notes.append(f"{counts} and were left out: the scores are not comparable with those of the whole split")
    missing_ids = {item.id for item in missing}
    return dataclasses.replace(captions, items=tuple(item for item in captions if item.id not in missing_ids))


def _training(whole: CaptionSet, train_captions: Path | None) -> tuple[str, ...] | None:
    """The captions of the given file, or of the train split of the data."""
    if train_captions is not None:
        training_set = read_set(train_captions, setting="--train-captions")
        return tuple(
            training_set.split("train").captions() if "train" in training_set.splits else training_set.captions()
        )
    return tuple(whole.split("train").captions()) if "train" in whole.splits else None
