"""Karpathy's dataset_*.json: COCO, Flickr8k and Flickr30k with the splits of the literature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from captioner.data.caption_set import CaptionSet, Item, split_name
from captioner.data.formats.image_folder import find_image_folder
from captioner.data.formats.text_files import read_json
from captioner.errors import CaptionerError, brief


def read_karpathy(
    path: Path,
    images: Path | None = None,
    *,
    name: str | None = None,
    images_setting: str | None = None,
    content: Any = None,
) -> CaptionSet:
    """Read all splits of the file. Ids are COCO's if the file has them, else the file's own."""
    dataset = read_json(path) if content is None else content
    if not isinstance(dataset, dict) or not isinstance(dataset.get("images"), list):
        raise CaptionerError(f"{path}: not a Karpathy file: it has no list of `images`")
    records = dataset["images"]
    for position, record in enumerate(records):
        for key in ("filename", "split", "sentences"):
            if not isinstance(record, dict) or key not in record:
                raise CaptionerError(f"{path}: images[{position}] lacks {key!r}: {brief(record)}")
        if not isinstance(record["sentences"], list):
            raise CaptionerError(f"{path}: images[{position}]: `sentences` is not a list: {brief(record)}")
    pictures = [(str(record["filename"]), str(record.get("filepath", ""))) for record in records]
    image_folder = find_image_folder(path, images, pictures, images_setting)
    key = next((key for key in ("cocoid", "imgid") if all(key in record for record in records)), "filename")
    items = tuple(
        Item(
            record[key],
            image_folder.find(file, folder),
            tuple(_raw(sentence, path, position) for sentence in record["sentences"]),
            split_name(str(record["split"])),
        )
        for position, (record, (file, folder)) in enumerate(zip(records, pictures, strict=True))
    )
    return CaptionSet(name or str(dataset.get("dataset") or path.stem), items)


def _raw(sentence: Any, path: Path, position: int) -> str:
    if isinstance(sentence, dict):
        if isinstance(sentence.get("raw"), str):
            return str(sentence["raw"])
        if isinstance(sentence.get("tokens"), list):
            return " ".join(map(str, sentence["tokens"]))
    raise CaptionerError(f"{path}: images[{position}] has a sentence without `raw` text: {str(sentence)[:80]}")
