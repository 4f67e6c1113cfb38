"""The feature cache: each image passes the frozen trunk once; the output is kept in float16 shards.

A cache folder holds `cache.json` (what the features were computed with) and, per shard, `NNNNN.npy` (rows) and
`NNNNN.json` (the keys of the rows' images). The JSON file of a shard is written last, and a shard without it does not
count: an interruption loses at most the current shard, and more images can be added at any time. One process writes at
a time; others wait, and then find the features in the cache.
"""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from captioner.bundle.verification import sha256
from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.files.atomic import open_atomically, sweep, write_atomically
from captioner.images.pixels import TRANSFORM
from captioner.images.reading import load_for_model
from captioner.model.encoder import Encoder
from captioner.text.json_text import to_json

Encode = Callable[[NDArray[np.uint8]], NDArray[np.float32]]  # pixels (B, S, S, 3) -> (B, C, rows, cols)


@dataclass(frozen=True)
class FeatureSpec:
    """Everything that determines the cached numbers. A cache with a different spec is refused."""

    encoder: str
    fingerprint: str  # of the trunk's stages and weights
    size: int
    transform: str
    flip: bool
    shape: tuple[int, int, int]  # channels, rows, cols

    @classmethod
    def of(cls, encoder: Encoder, *, flip: bool) -> FeatureSpec:
        return cls(
            encoder.settings.name,
            encoder.fingerprint(),
            encoder.settings.size,
            TRANSFORM,
            flip,
            encoder.cached_shape(),
        )


def image_key(path: Path) -> str:
    """The key of an image: folder, name, size, and a checksum of its beginning, middle and end.

    It changes when the file changes, differs between files of the same name, and stays when the data set is moved.
    """
    block = 8192
    with zip_paths.open_binary(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        checksum = crc32(file.read(block))
        for start in (max(block, (size - block) // 2), max(2 * block, size - block)):
            file.seek(start)
            checksum = crc32(file.read(block), checksum)
    return f"{path.parent.name}/{path.name}:{size}:{checksum:08x}"


class Features:
    """A cache opened for reading: rows by the keys of images."""

    def __init__(self, folder: Path, spec: FeatureSpec) -> None:
        self.folder = folder
        self.spec = spec
        _check_spec(folder, spec)
        self.shards: list[Shard] = []
        self.locations: dict[str, tuple[int, int]] = {}  # shard and row by image key
        for listing in _listings(folder):
            shard = Shard(listing, (1 + spec.flip, *spec.shape))
            self.locations.update({name: (len(self.shards), row) for row, name in enumerate(shard.keys)})
            self.shards.append(shard)

    def missing(self, keys: Sequence[str]) -> list[str]:
        return [name for name in keys if name not in self.locations]

    def locate(self, keys: Sequence[str]) -> NDArray[np.int32]:
        """Shard and row of every key, (N, 2). An incomplete cache is an error."""
        missing = self.missing(keys)
        if missing:
            raise CaptionerError(
                f"the feature cache {self.folder} is incomplete: {len(missing)} of {len(keys)} images are missing, "
                f"the first is {missing[0]}; run `captioner features` with the same config"
            )
        return np.array([self.locations[name] for name in keys], np.int32).reshape(-1, 2)

    def read(self, locations: NDArray[np.int32], views: NDArray[np.int64] | None = None) -> torch.Tensor:
        """Grids (B, C, rows, cols) as float32, by shard and row; a view of 1 is the mirror image."""
        batch = np.empty((len(locations), *self.spec.shape), np.float16)
        for i, (shard, row) in enumerate(locations):
            self.shards[shard].read(int(row), 0 if views is None else int(views[i]), batch[i])
        return torch.from_numpy(batch).float()


class Shard:
    """The rows of a shard, read from its file when they are needed.

    A memory map takes 10 microseconds per row instead of 13, but ends the process without a word if the file is cut off
    in the meantime.
    """

    def __init__(self, listing: Path, row: tuple[int, ...]) -> None:
        self.listing, self.row = listing, row
        self.lock = threading.Lock()  # threads share the position in the file
        self.file: BufferedReader | None = None
        with self._damage_explained():
            self.keys = _read_listing(listing)[0]
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # numpy reads some damaged headers with a warning
                mapped: NDArray[np.float16] = np.lib.format.open_memmap(self.path, mode="r")
            if mapped.shape != (len(self.keys), *row) or mapped.dtype != np.float16 or not mapped.flags.c_contiguous:
                raise ValueError(f"{mapped.dtype} {mapped.shape}, expected float16 {(len(self.keys), *row)}")
            assert isinstance(mapped, np.memmap)
            self.start: int = mapped.offset
            self.file = self.path.open("rb")

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    @property
    def path(self) -> Path:
        return self.listing.with_suffix(".npy")

    def read(self, row: int, view: int, into: NDArray[np.float16]) -> None:
        """Read a view of an image into an array (C, rows, cols)."""
        assert self.file is not None
        with self.lock, self._damage_explained():
            self.file.seek(self.start + (row * self.row[0] + view) * into.nbytes)
            if self.file.readinto(into.data.cast("B")) != into.nbytes:
                raise ValueError(f"it ends before row {row + 1} of {len(self.keys)}")

    @contextmanager
    def _damage_explained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # numpy evaluates the header and raises nearly any exception on a damaged one
            raise CaptionerError(
                f"the shard {self.path} is damaged ({error}); remove {self.listing} and run `captioner features` "
                "again: its images are then encoded again"
            ) from None


def verify_shards(folder: Path) -> tuple[int, list[Path]]:
    """Compare every shard with its checksum. Returns the number of shards, and the listings of the damaged ones."""
    damaged = []
    listings = _listings(folder)
    for listing in listings:
        try:
            checksum = _read_listing(listing)[1]
            if checksum is not None and checksum != sha256(listing.with_suffix(".npy")):
                damaged.append(listing)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            damaged.append(listing)
    return len(listings), damaged


def cache_folder(root: Path, spec: FeatureSpec) -> Path:
    """The folder of a cache: one per encoder, weights, cut and image size."""
    flip = "-flip" if spec.flip else ""
    return root.expanduser() / f"{spec.encoder}-{spec.size}{flip}-{spec.fingerprint[:8]}"


def build(
    folder: Path,
    spec: FeatureSpec,
    encoder: Encoder,
    paths: Sequence[Path],
    *,
    batch: int = 16,
    shard: int = 1024,
    device: str = "cpu",
    threads: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Features:
    """Encode the images that are not yet in the cache, and open it. Continues an interrupted run."""
    folder.mkdir(parents=True, exist_ok=True)
    images_by_key = {image_key(path): path for path in paths}
    with FileLock(folder / "lock"):  # the system releases it when its process is killed
        manifest = folder / "cache.json"
        if not manifest.exists():
            write_atomically(manifest, json.dumps(asdict(spec), indent=1))
        sweep(folder)
        cache = Features(folder, spec)
        todo = [(name, path) for name, path in images_by_key.items() if name not in cache.locations]
        if not todo:
            return cache
        encode = _encode_on_cpu(encoder, threads) if device == "cpu" else _encode_on(encoder, device)
        _encode_into(folder, spec, encode, todo, batch, shard, len(images_by_key), progress)
        return Features(folder, spec)


def _encode_into(
    folder: Path,
    spec: FeatureSpec,
    encode: Encode,
    todo: list[tuple[str, Path]],
    batch: int,
    shard: int,
    total: int,
    progress: Callable[[int, int], None],
) -> None:
    """Encode images into new shards."""
    # One after the largest number, not the number of shards: a shard may have been removed by hand.
    number = max((int(listing.stem) for listing in _listings(folder)), default=-1) + 1
    done = total - len(todo)
    progress(done, total)
    with ThreadPoolExecutor(2) as pool:
        for start in range(0, len(todo), shard):
            chunk = todo[start : start + shard]
            rows = np.empty((len(chunk), 1 + spec.flip, *spec.shape), np.float16)
            filled = 0
            for pixels in _pixel_batches(pool, [path for _, path in chunk], spec.size, batch):
                rows[filled : filled + len(pixels), 0] = encode(pixels)
                if spec.flip:
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
    remaining = iter(paths)
    futures = [pool.submit(load_for_model, path, size) for path in islice(remaining, 4 * batch)]
    while futures:
        current, futures = futures[:batch], futures[batch:]
        pixels = np.stack([future.result()[1] for future in current])
        futures += [pool.submit(load_for_model, path, size) for path in islice(remaining, len(current))]
        yield pixels


def _encode_on_cpu(encoder: Encoder, threads: int | None) -> Encode:
    """Runs the trunk in onnxruntime, whose convolutions are about twice as fast as torch's on a CPU."""
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


def _check_spec(folder: Path, spec: FeatureSpec) -> None:
    manifest = folder / "cache.json"
    if not manifest.is_file():
        raise CaptionerError(f"{folder} is not a feature cache: it has no cache.json; run `captioner features`")
    try:
        cached: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CaptionerError(f"{manifest} is damaged ({error}); remove {folder} and run `captioner features`") from None
    needed = json.loads(json.dumps(asdict(spec)))
    differences = [f"{k}: {cached.get(k)!r}, needed {v!r}" for k, v in needed.items() if cached.get(k) != v]
    if differences:
        raise CaptionerError(f"the feature cache {folder} was built with different settings: {'; '.join(differences)}")


def _listings(folder: Path) -> list[Path]:
    """The JSON files of the complete shards, in order."""
    return sorted(folder.glob("[0-9]*.json"))


def _read_listing(listing: Path) -> tuple[list[str], str | None]:
    """The keys of a shard's rows, and the checksum of its file; shards of version 0.1 have none."""
    content = json.loads(listing.read_text(encoding="utf-8"))
    keys, checksum = (content, None) if isinstance(content, list) else (content["keys"], content["sha256"])
    if not all(isinstance(key, str) for key in keys):
        raise ValueError("its keys are not text")
    return keys, checksum


def _write_shard(folder: Path, number: int, rows: NDArray[np.float16], keys: list[str]) -> None:
    rows_file = folder / f"{number:05d}.npy"
    try:
        with open_atomically(rows_file) as file:
            np.save(file, rows)
        listing = {"keys": keys, "sha256": sha256(rows_file)}
        write_atomically(rows_file.with_suffix(".json"), to_json(listing))
    except OSError as error:
        raise CaptionerError(
            f"the feature cache {folder} cannot be written ({error.strerror or error}); make room and run the command "
            "again: it continues with this shard"
        ) from error
