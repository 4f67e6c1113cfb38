"""The feature cache: every image goes through the frozen trunk once, into float16 memory-mapped shards.

A cache folder holds `cache.json` (what made it) and pairs `NNNNN.npy` + `NNNNN.json` (rows and whose they
are). A shard counts once its json is there, and that is renamed into place last: an interruption loses at
most the shard in hand, and a cache can grow by further images at any time. One process writes at a time:
another one waits, and then finds what is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from captioner.errors import CaptionerError
from captioner.files.atomic import open_atomically, sweep, write_atomically
from captioner.images.pixels import TRANSFORM
from captioner.images.reading import load
from captioner.model.encoder import Encoder

Encode = Callable[[NDArray[np.uint8]], NDArray[np.float32]]  # pixels (B, S, S, 3) -> (B, C, rows, cols)


@dataclass(frozen=True)
class Maker:
    """What decides the cached numbers; a cache of another maker is refused with what differs."""

    encoder: str
    fingerprint: str  # of the trunk's stages and weights
    size: int
    transform: str
    flip: bool
    shape: tuple[int, int, int]  # channels, rows, cols

    @classmethod
    def of(cls, encoder: Encoder, *, flip: bool) -> Maker:
        return cls(
            encoder.settings.name,
            encoder.fingerprint(),
            encoder.settings.size,
            TRANSFORM,
            flip,
            encoder.cached_shape(),
        )


def key(path: Path) -> str:
    """How an image is known to the cache: folder, name, size, and a checksum of its beginning, middle and end.

    So a changed file is seen, and two files of one name are told apart, wherever the data set is moved to.
    """
    block = 8192
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        sum_ = crc32(file.read(block))
        for start in (max(block, (size - block) // 2), max(2 * block, size - block)):
            file.seek(start)
            sum_ = crc32(file.read(block), sum_)
    return f"{path.parent.name}/{path.name}:{size}:{sum_:08x}"


class Features:
    """A cache opened for reading: rows of images by key."""

    def __init__(self, folder: Path, maker: Maker) -> None:
        self.folder = folder
        self.maker = maker
        _check_maker(folder, maker)
        self.shards: list[NDArray[np.float16]] = []
        self.rows: dict[str, tuple[int, int]] = {}
        for listing in _listings(folder):
            keys, shard = _open_shard(listing, (1 + maker.flip, *maker.shape))
            self.rows.update({name: (len(self.shards), row) for row, name in enumerate(keys)})
            self.shards.append(shard)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [name for name in keys if name not in self.rows]

    def locate(self, keys: Sequence[str]) -> NDArray[np.int32]:
        """Shard and row of every key, (N, 2); an incomplete cache is an error."""
        missing = self.missing(keys)
        if missing:
            raise CaptionerError(
                f"the feature cache {self.folder} is not whole: {len(missing)} of {len(keys)} images are missing, "
                f"the first is {missing[0]}; run `captioner features` with the same config"
            )
        return np.array([self.rows[name] for name in keys], np.int32).reshape(-1, 2)

    def read(self, places: NDArray[np.int32], views: NDArray[np.int64] | None = None) -> torch.Tensor:
        """Rows (B, C, rows, cols) as float32; `views` 1 is the mirror image."""
        batch = np.empty((len(places), *self.maker.shape), np.float16)
        for i, (shard, row) in enumerate(places):
            batch[i] = self.shards[shard][row, 0 if views is None else views[i]]
        return torch.from_numpy(batch).float()


def cache_folder(root: Path, maker: Maker) -> Path:
    """Where a maker's cache lives: one folder an encoder, weights, cut and size."""
    flip = "-flip" if maker.flip else ""
    return root.expanduser() / f"{maker.encoder}-{maker.size}{flip}-{maker.fingerprint[:8]}"


def build(
    folder: Path,
    maker: Maker,
    encoder: Encoder,
    paths: Sequence[Path],
    *,
    batch: int = 16,
    shard: int = 1024,
    device: str = "cpu",
    threads: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Features:
    """Encode what is not yet in the cache, and open it. Goes on where an interrupted run was."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {key(path): path for path in paths}
    with FileLock(folder / "lock"):  # the system gives it back when its holder is killed
        manifest = folder / "cache.json"
        if not manifest.exists():
            write_atomically(manifest, json.dumps(asdict(maker), indent=1).encode())
        have = Features(folder, maker)
        todo = [(name, path) for name, path in wanted.items() if name not in have.rows]
        if not todo:
            return have
        sweep(folder)
        make = _encode_on_cpu(encoder, threads) if device == "cpu" else _encode_on(encoder, device)
        _encode_into(folder, maker, make, todo, batch, shard, len(wanted), progress)
        return Features(folder, maker)


def _encode_into(
    folder: Path,
    maker: Maker,
    encode: Encode,
    todo: list[tuple[str, Path]],
    batch: int,
    shard: int,
    total: int,
    progress: Callable[[int, int], None],
) -> None:
    """Encode images into further shards."""
    # After the last one there is, not the count of them: a shard may have been taken out by hand.
    number = max((int(listing.stem) for listing in _listings(folder)), default=-1) + 1
    done = total - len(todo)
    progress(done, total)
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(todo), shard):
            chunk = todo[start : start + shard]
            rows = np.empty((len(chunk), 1 + maker.flip, *maker.shape), np.float16)
            filled = 0
            for pixels in _pixel_batches(pool, [path for _, path in chunk], maker.size, batch):
                rows[filled : filled + len(pixels), 0] = encode(pixels)
                if maker.flip:
                    rows[filled : filled + len(pixels), 1] = encode(np.ascontiguousarray(pixels[:, :, ::-1]))
                filled += len(pixels)
                progress(done + filled, total)
            _write_shard(folder, number, rows, [name for name, _ in chunk])
            number += 1
            done += len(chunk)


def _pixel_batches(
    pool: ThreadPoolExecutor, paths: Sequence[Path], size: int, batch: int
) -> Iterator[NDArray[np.uint8]]:
    """Decoded pictures in order, a few batches ahead of the encoder."""
    waiting = iter(paths)
    ahead = [pool.submit(load, path, size) for path in islice(waiting, 4 * batch)]
    while ahead:
        now, ahead = ahead[:batch], ahead[batch:]
        pixels = np.stack([future.result()[1] for future in now])
        ahead += [pool.submit(load, path, size) for path in islice(waiting, len(now))]
        yield pixels


def _encode_on_cpu(encoder: Encoder, threads: int | None) -> Encode:
    """The trunk through onnxruntime, which runs convolutions on a CPU about twice as fast as torch."""
    import tempfile

    import onnxruntime as ort

    from captioner.export.onnx_graphs import export_trunk

    options = ort.SessionOptions()
    if threads:
        options.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trunk.onnx"
        export_trunk(encoder, path)
        run = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        grid: NDArray[np.float32] = run.run(["grid"], {"pixels": pixels})[0]
        return grid

    return encode


def _encode_on(encoder: Encoder, device: str) -> Encode:
    encoder = encoder.to(device)

    @torch.inference_mode()
    def encode(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        grid: NDArray[np.float32] = encoder.trunk(torch.from_numpy(pixels).to(device)).float().cpu().numpy()
        return grid

    return encode


def _check_maker(folder: Path, maker: Maker) -> None:
    manifest = folder / "cache.json"
    if not manifest.is_file():
        raise CaptionerError(f"{folder} is not a feature cache: it has no cache.json; run `captioner features`")
    try:
        found: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CaptionerError(f"{manifest} is damaged ({error}); remove {folder} and run `captioner features`") from None
    expected = json.loads(json.dumps(asdict(maker)))
    differing = [f"{k}: {found.get(k)!r}, needed {v!r}" for k, v in expected.items() if found.get(k) != v]
    if differing:
        raise CaptionerError(f"the feature cache {folder} was made otherwise: {'; '.join(differing)}")


def _listings(folder: Path) -> list[Path]:
    """The listings of the shards that count, in order."""
    return sorted(folder.glob("[0-9]*.json"))


def _open_shard(listing: Path, row: tuple[int, ...]) -> tuple[list[str], NDArray[np.float16]]:
    """Whose rows a shard holds, and the rows; a shard that is not whole is an error that says what to do."""
    data = listing.with_suffix(".npy")
    try:
        keys: list[str] = json.loads(listing.read_text(encoding="utf-8"))
        shard: NDArray[np.float16] = np.load(data, mmap_mode="r")
        if shard.shape != (len(keys), *row) or shard.dtype != np.float16:
            raise ValueError(f"{shard.dtype} {shard.shape}, expected float16 {(len(keys), *row)}")
    except (OSError, EOFError, ValueError) as error:
        raise CaptionerError(
            f"the shard {data} is damaged ({error}); remove {listing} and run `captioner features` again: "
            "its images are then encoded anew"
        ) from None
    return keys, shard


def _write_shard(folder: Path, number: int, rows: NDArray[np.float16], keys: list[str]) -> None:
    final = folder / f"{number:05d}.npy"
    with open_atomically(final) as file:
        np.save(file, rows)
    write_atomically(final.with_suffix(".json"), json.dumps(keys, ensure_ascii=False).encode())
