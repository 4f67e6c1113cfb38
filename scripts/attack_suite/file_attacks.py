"""Attacks that read hostile files in this process. They run in a child, so that a crash is a result too.

Each attack is a function of a folder and random numbers, and returns a function that tries one input. Only success or a
CaptionerError with a message of sane length is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack_suite import mutations

Attack = Callable[[], None]
WEIGHTS = Path(__file__).resolve().parents[2] / "weights" / "default"
SECONDS = 11.0  # of the processor that one input may take: the limit of a picture, and a little more


def picture_attack(folder: Path, rng: random.Random) -> Attack:
    """Mutated pictures of every format."""
    from captioner.images.reading import load_for_model

    files = mutations.pictures(rng)

    def attack() -> None:
        load_for_model(mutations.mutated(rng.choice(files), rng), 64)

    return attack


def bundle_attack(folder: Path, rng: random.Random) -> Attack:
    """Manifests with wrong values, and graphs with changed bytes and right checksums."""
    from captioner.bundle.loading import load_bundle

    for name in ("manifest.json", "begin.onnx", "decoder.onnx", "encoder.onnx", "vocabulary.json"):
        (folder / name).write_bytes((WEIGHTS / name).read_bytes())
    (folder / "model.safetensors").write_bytes(b"weights")  # loading compares its checksum and does not read it
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {name: record for name, record in manifest["files"].items() if (folder / name).exists()}
    manifest["files"]["model.safetensors"] = _record(b"weights")
    graphs = {name: (folder / name).read_bytes() for name in ("begin.onnx", "decoder.onnx", "vocabulary.json")}

    def attack() -> None:
        if rng.random() < 0.5:
            (folder / "manifest.json").write_bytes(mutations.mutated_text(manifest, rng))
        else:
            name = rng.choice(list(graphs))
            data = mutations.mutated(graphs[name], rng)
            (folder / name).write_bytes(data)
            changed = manifest | {"files": manifest["files"] | {name: _record(data)}}
            (folder / "manifest.json").write_text(json.dumps(changed))
        try:
            load_bundle(folder)
        finally:
            for name, data in graphs.items():
                (folder / name).write_bytes(data)

    return attack


def graph_attack(folder: Path, rng: random.Random) -> Attack:
    """Graphs of a tiny model with changed bytes and right checksums: those that are accepted caption a picture."""
    import resource

    import numpy as np

    from captioner import Captioner
    from tests.tiny_bundle import write_model

    resource.setrlimit(resource.RLIMIT_AS, (8_000_000_000, 8_000_000_000))  # a graph may ask for any memory
    write_model(folder / "toy")
    manifest = json.loads((folder / "toy" / "manifest.json").read_text())
    graphs = {name: (folder / "toy" / name).read_bytes() for name in ("encoder.onnx", "begin.onnx", "decoder.onnx")}
    picture = np.zeros((20, 20, 3), np.uint8)

    def attack() -> None:
        name = rng.choice(list(graphs))
        data = mutations.mutated(graphs[name], rng)
        (folder / "toy" / name).write_bytes(data)
        changed = manifest | {"files": manifest["files"] | {name: _record(data)}}
        (folder / "toy" / "manifest.json").write_text(json.dumps(changed))
        try:
            Captioner.load(folder / "toy", threads=1)(picture)
        finally:
            (folder / "toy" / name).write_bytes(graphs[name])

    return attack


def _record(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def data_attack(folder: Path, rng: random.Random) -> Attack:
    """Caption files of every format, results and references."""
    from captioner.data.formats.coco_results import read_references, read_results
    from captioner.data.formats.detection import read_set

    images = [{"id": number, "file_name": f"{number}.jpg"} for number in range(3)]
    annotations = [{"id": 9 - n, "image_id": n, "caption": "a dog runs"} for n in range(3)]
    sentences = [{"raw": "a dog runs", "tokens": ["a", "dog", "runs"]}]
    karpathy = [{"filename": "1.jpg", "split": "train", "sentences": sentences, "imgid": 1, "cocoid": 7}]
    values: list[Any] = [
        {"images": images, "annotations": annotations},
        {"images": karpathy, "dataset": "x"},
        [{"image": "1.jpg", "caption": "a dog", "split": "val"}],
        [{"image_id": 1, "caption": "a dog"}],
    ]
    texts = [
        b'image,caption,split\n1.jpg,a dog,train\n\n2.jpg,"a, cat",val\n',
        b"1.jpg#0\ta dog runs\n1.jpg#1\ta cat\n",
        b'{"image": "1.jpg", "caption": ["a dog", "a cat"]}\n',
    ]
    readers: list[Callable[[Path], Any]] = [read_set, read_results, read_references]

    def attack() -> None:
        text = rng.random() < 0.3
        data = mutations.mutated(rng.choice(texts), rng) if text else mutations.mutated_text(rng.choice(values), rng)
        path = folder / rng.choice(("captions.json", "captions.csv", "tokens.txt"))
        path.write_bytes(data)
        try:
            rng.choice(readers)(path)
        finally:
            path.unlink()

    return attack


def config_attack(folder: Path, rng: random.Random) -> Attack:
    """Configs with wrong values and broken YAML."""
    import yaml

    from captioner.train import config_file

    root = WEIGHTS.parents[1] / "configs"
    configs = [yaml.safe_load(path.read_text()) for path in sorted(root.glob("*.yaml"))]
    texts = [path.read_bytes() for path in sorted(root.glob("*.yaml"))]

    def attack() -> None:
        path = folder / "config.yaml"
        if rng.random() < 0.5:
            path.write_bytes(mutations.mutated_text(rng.choice(configs), rng))
        else:
            path.write_bytes(mutations.mutated(rng.choice(texts), rng))
        config_file.load(path)

    return attack


def checkpoint_attack(folder: Path, rng: random.Random) -> Attack:
    """Checkpoints and feature shards with changed bytes: they are refused, or hold the numbers that were written."""
    import numpy as np
    import torch

    from captioner.train import checkpoint, features

    tensors = {"network.a": torch.randn(40, 5), "rng.torch": torch.arange(9, dtype=torch.uint8)}
    checkpoint.write(folder / "last.safetensors", tensors, {"step": 3})
    rows = np.arange(60, dtype=np.float16).reshape(5, 1, 3, 2, 2)
    features._write_shard(folder, 0, rows, list("abcde"))
    checkpoint_file, shard = (folder / "last.safetensors").read_bytes(), (folder / "00000.npy").read_bytes()

    def attack() -> None:
        if rng.random() < 0.6:
            (folder / "last.safetensors").write_bytes(mutations.mutated(checkpoint_file, rng))
            read, state = checkpoint.read(folder / "last.safetensors")
            same = read.keys() == tensors.keys() and all(torch.equal(read[name], tensors[name]) for name in tensors)
            if not same or state != {"step": 3}:
                raise AssertionError("a damaged checkpoint was read with other values")
        else:
            changed = mutations.mutated(shard, rng)
            (folder / "00000.npy").write_bytes(changed)
            if changed != shard and not features.verify_shards(folder)[1]:
                raise AssertionError("a damaged shard was not found")
            opened = features.Shard(folder / "00000.json", (1, 3, 2, 2))
            opened.read(4, 0, np.empty((3, 2, 2), np.float16))

    return attack


def name_attack(folder: Path, rng: random.Random) -> Attack:
    """Random file names in every line format: a resumed run finds each of them."""
    from captioner.caption import Caption
    from captioner.writers.lines import LineWriter, finished_names

    caption = Caption((), None, 0.0)

    def attack() -> None:
        names = {os.fsdecode(bytes(rng.choice(_NAME_BYTES) for _ in range(rng.randrange(1, 12)))) for _ in range(5)}
        for format in ("text", "jsonl", "csv"):
            path = folder / "out"
            escape = format == "csv" and rng.random() < 0.5
            with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                writer = LineWriter(file, format, escape_formulas=escape)
                for name in names:
                    writer.write(name, caption)
            found = finished_names(path, format, escape_formulas=escape)
            if found != names:
                raise AssertionError(f"{format}: wrote {names!r}, found {found!r}")

    return attack


_NAME_BYTES = [b for b in range(1, 256) if b != 0x2F]
ATTACKS: dict[str, Callable[[Path, random.Random], Attack]] = {
    "pictures": picture_attack,
    "bundles": bundle_attack,
    "graphs": graph_attack,
    "data files": data_attack,
    "configs": config_attack,
    "checkpoints and shards": checkpoint_attack,
    "names": name_attack,
}


def main(name: str, folder: Path, seed: int, seconds: float) -> None:
    """Attack until the time is over, and write one JSON line per second: tried, bad and examples so far."""
    from captioner.errors import CaptionerError

    attack = ATTACKS[name](folder, random.Random(seed))
    tried, bad, end = 0, [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.process_time()  # a busy machine is not the input's fault
        problem = None
        try:
            attack()
        except CaptionerError as error:
            problem = f"a message of {len(str(error)):,} characters" if len(str(error)) > 20_000 else None
        except Exception:
            problem = traceback.format_exc()[-600:]
        if time.process_time() - start > SECONDS:
            problem = f"took {time.process_time() - start:.1f} seconds"
        tried += 1
        if problem:
            bad.append(problem)
    print(json.dumps([tried, len(bad), bad[:3]]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
