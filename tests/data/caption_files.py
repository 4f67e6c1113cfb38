"""Writes small caption files and pictures for tests of data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (8, 6), orientation: int = 1) -> Path:
    """Write a picture of random pixels that depend on the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif)
    return path


def pictures(folder: Path, names: Iterable[str]) -> None:
    for seed, name in enumerate(names):
        picture(folder / name, seed)


def write(path: Path, content: Any) -> Path:
    """Write a string unchanged, anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def coco(captions: dict[int, list[str]], name: str = "{:012d}.jpg") -> dict[str, Any]:
    """The content of a COCO captions file, given the captions of each image id."""
    annotations = [(image, caption) for image, texts in captions.items() for caption in texts]
    return {
        "images": [{"id": image, "file_name": name.format(image)} for image in captions],
        "annotations": [
            {"id": i, "image_id": image, "caption": caption} for i, (image, caption) in enumerate(annotations)
        ],
    }


def karpathy(images: list[tuple[str, str, list[str]]], **more: Any) -> dict[str, Any]:
    """The content of a Karpathy split file, given (file name, split, captions) per image."""
    return {
        "dataset": "tiny",
        "images": [
            {
                "imgid": i,
                "filename": file,
                "split": split,
                "sentences": [{"raw": text, "tokens": text.lower().split()} for text in captions],
                **more,
            }
            for i, (file, split, captions) in enumerate(images)
        ],
    }
