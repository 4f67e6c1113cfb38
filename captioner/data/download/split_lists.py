"""Karpathy's splits of COCO as lists of image ids, from any of the forms in which they are published."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from captioner.data.caption_set import split_name, split_of_file
from captioner.data.formats.text_files import parse_json, read_text
from captioner.errors import CaptionerError
from captioner.files import zip_paths

_IMAGE_ID = re.compile(r"(\d+)(?:\.jpg)?$", re.IGNORECASE)  # at the end of a name or number


def read_split_lists(path: Path) -> dict[str, list[int]]:
    """The ids of each split in a file: Karpathy's dataset_coco.json, a zip file that contains it, LAVIS's
    coco_karpathy_train.json, or a list with one id or file name per line. A list's split is in the file's name.
    """
    if zip_paths.is_archive(path):
        inside = [file for folder, names in zip_paths.walk(path) for file in (folder / name for name in names)]
        inside = [file for file in inside if file.name == "dataset_coco.json"]
        if not inside:
            raise CaptionerError(f"{path}: contains no dataset_coco.json")
        return read_split_lists(inside[0])
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return _of_dataset(parse_json(text, str(path)), path)
    if text.lstrip().startswith("["):
        entries = parse_json(text, str(path))
        names = [entry.get("image", "") if isinstance(entry, dict) else entry for entry in entries]
    else:
        names = [line.split()[-1] for line in text.splitlines() if line.strip()]
    split = split_of_file(path)
    if split is None:
        raise CaptionerError(f"{path}: the name of a list must tell its split, as in karpathy_val.txt")
    return {split: list(dict.fromkeys(_image_id(name, path) for name in names))}


def _of_dataset(dataset: Any, path: Path) -> dict[str, list[int]]:
    records = dataset.get("images")
    if not isinstance(records, list) or not all(
        isinstance(record, dict) and "split" in record and "cocoid" in record for record in records
    ):
        raise CaptionerError(f"{path}: not Karpathy's dataset_coco.json: its images need `split` and `cocoid`")
    splits: dict[str, list[int]] = {}
    for record in records:
        splits.setdefault(split_name(str(record["split"])), []).append(int(record["cocoid"]))
    return splits


def _image_id(name: object, path: Path) -> int:
    match = _IMAGE_ID.search(str(name).strip())
    if match is None:
        raise CaptionerError(f"{path}: {json.dumps(name)[:80]} is neither an image id nor a file name of COCO")
    return int(match[1])
