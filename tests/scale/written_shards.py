"""Writes shards of small pictures for tests: tar files, Parquet files, lists and folders with a metadata.jsonl."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from captioner.images.inputs import PictureBytes
from captioner.scale.samples import Sample
from tests.tiny_bundle import SIDE

NOISE = np.random.default_rng(9).bytes(3000)


def pictures(count: int, seed: int = 0) -> list[bytes]:
    """PNG files of four colored blocks, which the tiny model tells apart."""
    blocks = np.random.default_rng(seed).integers(0, 256, (count, 2, 2, 3), np.uint8)
    files = []
    for block in blocks:
        buffer = io.BytesIO()
        Image.fromarray(block.repeat(SIDE // 2, axis=0).repeat(SIDE // 2, axis=1)).save(buffer, "PNG")
        files.append(buffer.getvalue())
    return files


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def webdataset(path: Path, files: Iterable[bytes], *, first: int = 0) -> Path:
    """A shard of samples with a picture, a JSON file and a text."""
    members = []
    for number, data in enumerate(files, first):
        key = f"{number:06d}"
        members += [
            (f"{key}.png", data),
            (f"{key}.json", json.dumps({"caption": "old"}).encode()),
            (f"{key}.txt", b"x"),
        ]
    return write_tar(path, members)


def write_parquet(path: Path, /, **columns: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def data_of(sample: Sample) -> bytes:
    assert isinstance(sample.picture, PictureBytes)
    return bytes(sample.picture)


def rows(path: Path) -> list[dict]:
    return pyarrow.parquet.read_table(path).to_pylist()
