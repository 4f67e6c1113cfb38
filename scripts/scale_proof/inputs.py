"""Shards of real pictures, and shards that are cut off, empty, noise, no tar file, or have unusual names."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

ODD = 5  # shards of write_odd_shards
NOISE_SIZES = (20_000_000, 100_000, 5_000_000, 1_000, 40_000_000)  # bytes of the members of the shard of noise
TOO_LARGE = 300_000_000  # bytes of one more, beyond the limit for a picture


def write_shards(folder: Path, pictures: Sequence[Path], shards: int, per_shard: int) -> None:
    """Webdataset shards of these pictures, repeated if there are too few, each under its own key."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(shard * per_shard, (shard + 1) * per_shard):
                picture = pictures[number % len(pictures)]
                _add(tar, f"{number:08d}{picture.suffix}", picture.read_bytes())


def write_odd_shards(folder: Path, pictures: Sequence[Path], noise_bytes: int) -> None:
    """Five shards: cut off in its third picture, without pictures, noise, no tar file, with unicode names."""
    with tarfile.open(folder / "cut.tar", "w") as tar:
        for number, picture in enumerate(pictures[:4]):
            _add(tar, f"cut-{number}{picture.suffix}", picture.read_bytes())
    with tarfile.open(folder / "cut.tar") as tar:
        third = tar.getmembers()[2]
    os.truncate(folder / "cut.tar", third.offset_data + third.size // 2)
    with tarfile.open(folder / "empty.tar", "w") as tar:
        _add(tar, "notes.txt", b"no pictures")
    write_noise(folder / "noise.tar", noise_bytes)
    (folder / "junk.tar").write_bytes(os.urandom(100_000))
    with tarfile.open(folder / "ünïcode ☃.tar", "w") as tar:
        for name, picture in zip(("größe/漢字 ☃", "e\u0301", "🏔 emoji", "with.dots"), pictures, strict=False):
            _add(tar, f"{name}{picture.suffix}", picture.read_bytes())
        _add(tar, "noise ☃.jpg", os.urandom(5000))


def write_noise(path: Path, size: int) -> None:
    """A valid tar file whose members are noise: of every three, two are named like pictures and one like a text.

    So all of its bytes pass through the reader. A large shard has a member that is too large for a picture.
    """
    with tarfile.open(path, "w") as tar:
        number = written = 0
        if size > 2 * TOO_LARGE:
            _add_noise(tar, "noise-huge.jpg", TOO_LARGE)
            written = TOO_LARGE
        while written < size:
            length = min(NOISE_SIZES[number % len(NOISE_SIZES)], size - written)
            _add_noise(tar, f"noise-{number:06d}.{'txt' if number % 3 == 2 else 'jpg'}", length)
            number, written = number + 1, written + length


class _Noise(io.RawIOBase):
    """A file of noise that is made while it is read. No format of pictures begins as it does."""

    def __init__(self) -> None:
        self._start = b"noise"

    def read(self, size: int = -1) -> bytes:
        start, self._start = self._start[:size], b""
        return start + os.urandom(size - len(start))


def _add_noise(tar: tarfile.TarFile, name: str, size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    tar.addfile(info, _Noise())


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
