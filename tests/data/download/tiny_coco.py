"""Small archives of the published layouts, for the server of the tests."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner.data.download import catalogue
from tests.data.download.file_server import Server

# ids of COCO's own splits; Karpathy takes val and test from COCO's val, and the rest of that is restval
TRAIN, VAL = (1, 2, 3, 4), (11, 12, 13, 14)
KARPATHY = {"train": (4, 1, 2, 3), "restval": (14,), "val": (12, 11), "test": (13,)}


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def file_name(image: int, year: str) -> str:
    if year == "2017":
        return f"{image:012d}.jpg"
    return f"COCO_{'train' if image in TRAIN else 'val'}2014_{image:012d}.jpg"


def captions(images: tuple[int, ...], year: str) -> dict[str, Any]:
    return {
        "info": {"year": int(year)},
        "licenses": [{"id": 1}],
        "images": [{"id": image, "file_name": file_name(image, year), "license": 1} for image in images],
        "annotations": [
            {"id": 100 * image + k, "image_id": image, "caption": f"A picture number {image} {'again' * k}"}
            for image in images
            for k in range(5)
        ],
    }


def serve_coco(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both years of COCO, and Karpathy's lists as LAVIS publishes them; the catalogue gets their checksums."""
    for year in ("2014", "2017"):
        files = {"annotations/person_keypoints_train.json": b"{}"}
        for split, images in (("train", TRAIN), ("val", VAL)):
            files[f"annotations/captions_{split}{year}.json"] = json.dumps(captions(images, year)).encode()
            files[f"annotations/instances_{split}{year}.json"] = b'{"images": []}'
            pictures = {f"{split}{year}/{file_name(image, year)}": jpeg(image) for image in images}
            server.files.update({f"/{name}": content for name, content in pictures.items()})
            archive = zipped({f"{split}{year}/": b"", **pictures})
            _publish(server, monkeypatch, catalogue.COCO_PICTURES, f"{split}{year}", archive)
        _publish(server, monkeypatch, catalogue.COCO_ANNOTATIONS, year, zipped(files))
    for split, content in lavis().items():
        _publish(server, monkeypatch, catalogue.KARPATHY_SPLITS, split, content)


def lavis() -> dict[str, bytes]:
    """Karpathy's splits in LAVIS's form: one row per caption in train, one per image in val and test."""

    def image(number: int) -> str:
        name = file_name(number, "2014")
        return f"{'train2014' if number in TRAIN else 'val2014'}/{name}"

    train = [{"caption": "x", "image": image(i), "image_id": f"coco_{i}"} for i in (4, 4, 1, 2, 3, 14, 14)]
    others = {s: [{"image": image(i), "caption": ["x"] * 5} for i in KARPATHY[s]] for s in ("val", "test")}
    return {split: json.dumps(rows).encode() for split, rows in {"train": train, **others}.items()}


def dataset_coco() -> bytes:
    """Karpathy's own file."""
    images = [
        {"cocoid": i, "split": split, "filename": file_name(i, "2014"), "sentences": []}
        for split, ids in KARPATHY.items()
        for i in ids
    ]
    return json.dumps({"dataset": "coco", "images": images}).encode()


def serve_flickr8k(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"train": ["a.jpg", "b.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}
    lines = [f"{name}#{k}\tA photo {name[0]} {k} ." for split in names.values() for name in split for k in range(5)]
    lines.append("e.jpg.1#0\tIn no list .")
    text = {"Flickr8k.token.txt": "\n".join(lines).encode(), "__MACOSX/._readme.txt": b"x", "readme.txt": b"x"}
    text |= {f"Flickr_8k.{split}Images.txt": "\n".join(files).encode() for split, files in names.items()}
    pictures = {f"Flicker8k_Dataset/{name}": jpeg(ord(name[0])) for split in names.values() for name in split}
    pictures |= {"Flicker8k_Dataset/": b"", "__MACOSX/Flicker8k_Dataset/._a.jpg": b"x"}
    for attribute, content in (("FLICKR8K_TEXT", zipped(text)), ("FLICKR8K_PICTURES", zipped(pictures))):
        file = getattr(catalogue, attribute)
        server.files[f"/{file.path}"] = content
        monkeypatch.setattr(f"captioner.data.download.flickr8k_files.{attribute}", _published(file, content))


def _publish(
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    table: dict[str, catalogue.PublishedFile],
    key: str,
    content: bytes,
) -> None:
    server.files[f"/{table[key].path}"] = content
    monkeypatch.setitem(table, key, _published(table[key], content))


def _published(file: catalogue.PublishedFile, content: bytes) -> catalogue.PublishedFile:
    return replace(file, size=len(content), md5=hashlib.md5(content, usedforsecurity=False).hexdigest())
