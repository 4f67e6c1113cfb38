"""Shards of real pictures, and shards that are cut off, empty, noise, or have unusual names."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

PIECE = 16_000_000  # bytes of noise that are written at a time


def write_shards(folder: Path, pictures: Sequence[Path], shards: int, per_shard: int) -> None:
    """Webdataset shards of these pictures, repeated if there are too few, each under its own key."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(shard * per_shard, (shard + 1) * per_shard):
                picture = pictures[number % len(pictures)]
                _add(tar, f"{number:08d}{picture.suffix}", picture.read_bytes())


def write_odd_shards(folder: Path, pictures: Sequence[Path], noise_bytes: int) -> None:
    """One shard that is cut off in its third picture, one without pictures, one of noise, one with unicode names."""
    with tarfile.open(folder / "cut.tar", "w") as tar:
        for number, picture in enumerate(pictures[:4]):
            _add(tar, f"cut-{number}{picture.suffix}", picture.read_bytes())
    with tarfile.open(folder / "cut.tar") as tar:
        third = tar.getmembers()[2]
    os.truncate(folder / "cut.tar", third.offset_data + third.size // 2)
    with tarfile.open(folder / "empty.tar", "w") as tar:
        _add(tar, "notes.txt", b"no pictures")
    with (folder / "noise.tar").open("wb") as file:
        for start in range(0, noise_bytes, PIECE):
            file.write(os.urandom(min(PIECE, noise_bytes - start)))
    with tarfile.open(folder / "ünïcode ☃.tar", "w") as tar:
        for name, picture in zip(("größe/漢字 ☃", "e\u0301", "🏔 emoji", "with.dots"), pictures, strict=False):
            _add(tar, f"{name}{picture.suffix}", picture.read_bytes())
        _add(tar, "noise ☃.jpg", os.urandom(5000))


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
