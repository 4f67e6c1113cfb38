"""The bundle: a folder that holds a model ready to run, and the rules that make it safe to load.

    weights/NAME/manifest.json       what the model is; size and sha256 of every other file
                 encoder.onnx        pixels -> annotations (or the encoder of a bundle beside this one)
                 begin.onnx          annotations -> the state before the first word
                 decoder.onnx        one word more
                 *.int8.onnx         the three graphs in 8 bits: quicker, a little less exact; optional
                 model.safetensors   the weights: the graphs point into it, and torch goes on training from it
                 vocabulary.json
                 README.md           the model card

Loading checks all of it and executes nothing. What the graphs take and give is in `captioner.inference.onnx_backend`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from captioner.bundle.manifest import FORMAT, FileRecord, Manifest, sibling
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.text.vocabulary import Vocabulary

MANIFEST, VOCABULARY = "manifest.json", "vocabulary.json"
BEGIN, DECODER, WEIGHTS, CARD = "begin.onnx", "decoder.onnx", "model.safetensors", "README.md"
MANIFEST_LIMIT = 10_000_000  # bytes; nothing that large is a manifest


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files have been verified."""

    folder: Path
    manifest: Manifest
    vocabulary: Vocabulary

    def path(self, name: str) -> Path:
        """A file that the manifest lists."""
        if name not in self.manifest.files:
            raise CaptionerError(f"{self.folder}: the bundle has no {name}")
        return self.folder / name

    @property
    def encoder(self) -> Path:
        return self.path(self.manifest.encoder.file)

    @property
    def size(self) -> int:
        """Bytes of all files, a shared encoder included."""
        return sum(record.size for record in self.manifest.files.values())


def load(folder: Path) -> Bundle:
    """Read a bundle and verify every file that is used: all but the model card."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    for name, record in manifest.files.items():
        if name != CARD:  # text for readers, which nothing here opens: it may be corrected
            _verify(folder, name, record, manifest.files)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    return Bundle(folder, manifest, vocabulary)


def int8_graph(graph: str) -> str:
    """The name of a graph's copy in 8 bits."""
    return graph.replace(".onnx", ".int8.onnx")


def read_manifest(folder: Path) -> Manifest:
    """The manifest alone, with the names it must list; the files themselves are not looked at."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise CaptionerError(f"{folder}: no such folder")
    if not path.is_file():
        raise CaptionerError(f"{folder}: not a bundle, for it has no {MANIFEST}")
    if path.stat().st_size > MANIFEST_LIMIT:
        raise CaptionerError(f"{path}: too large for a manifest")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CaptionerError(f"{path}: not JSON ({error})") from None
    manifest = Manifest.from_json(values, str(path))
    for name in (manifest.encoder.file, BEGIN, DECODER, VOCABULARY):
        if name not in manifest.files:
            raise CaptionerError(f"{path}: the manifest lists no {name}")
    return manifest


def _verify(folder: Path, name: str, record: FileRecord, listed: Collection[str]) -> None:
    path = folder / name
    home = folder.resolve()
    if sibling(name) is not None:
        home = home.parent / str(sibling(name))
        path = home / Path(name).name
        if not (home / MANIFEST).is_file():
            raise CaptionerError(
                f"{folder}: its encoder is in the bundle {home.name!r}, which is not beside it; put that one there too"
            )
    if not path.is_file():
        raise CaptionerError(f"{folder}: {name} is missing; the bundle is not complete")
    if path.resolve().parent != home.resolve():
        raise CaptionerError(f"{folder}: {name} is a link out of the bundle, which is not followed")
    size = path.stat().st_size
    if size != record.size:
        raise CaptionerError(
            f"{folder}: {name} has {size:,} bytes where the manifest says {record.size:,}; "
            "the file is damaged or from another bundle"
        )
    if _sha256(path) != record.sha256:
        raise CaptionerError(
            f"{folder}: the checksum of {name} is not the manifest's; the file is damaged or was changed"
        )

    if path.suffix == ".onnx":
        for location in _external(path.read_bytes()):
            beside = str(PurePosixPath(name).parent / location)  # as the manifest would list it
            if "/" in location or beside not in listed:
                raise CaptionerError(
                    f"{folder}: {name} reads weights from {location!r}, which the manifest does not list"
                )


def _external(graph: bytes) -> set[str]:
    """The files that an onnx graph takes weights from: values of the key `location`, as protobuf writes them."""
    found = set()
    for match in re.finditer(rb"\n\x08location\x12", graph):
        size, shift, at = 0, 0, match.end()
        while at < len(graph):
            size |= (graph[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if graph[at - 1] < 0x80:
                break
        found.add(graph[at : at + size].decode("utf-8", errors="replace"))
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write(folder: Path, files: Mapping[str, Path | bytes], manifest: Manifest, vocabulary: Vocabulary) -> Bundle:
    """Write a bundle in one go: it appears whole or not at all, and takes an older bundle's place.

    `files` are what goes in beside the manifest and the vocabulary; sizes and checksums are filled in here.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve would follow a link to another place)
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder}: exists and is not a bundle; give another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = folder.parent / f".{folder.name}.{os.getpid()}.new"
    stale = folder.parent / f".{folder.name}.{os.getpid()}.old"
    fresh.mkdir()
    try:
        for name, content in files.items():
            if isinstance(content, bytes):
                (fresh / name).write_bytes(content)
            else:
                shutil.copyfile(content, fresh / name)
        vocabulary.save(fresh / VOCABULARY)
        records = {path.name: _record(path) for path in sorted(fresh.iterdir())}
        if (home := sibling(manifest.encoder.file)) is not None:
            records[manifest.encoder.file] = _record(fresh / manifest.encoder.file)
            if (folder.parent / home / WEIGHTS).is_file():
                records[f"../{home}/{WEIGHTS}"] = _record(folder.parent / home / WEIGHTS)
        whole = replace(manifest, files=records)
        (fresh / MANIFEST).write_text(
            json.dumps(whole.to_json(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
        )
        for path in fresh.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        load(fresh)
        if folder.exists():
            folder.rename(stale)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(stale, ignore_errors=True)
    return Bundle(folder, whole, vocabulary)


def _record(path: Path) -> FileRecord:
    if not path.is_file():
        raise CaptionerError(f"{path}: missing, though the bundle shall hold it")
    return FileRecord(path.stat().st_size, _sha256(path))


def search_path() -> list[Path]:
    """The folders that are searched for a model's name, in order; the last is below the current folder."""
    package = Path(__file__).resolve().parents[1]
    named = [Path(part) for part in os.environ.get("CAPTIONER_WEIGHTS", "").split(os.pathsep) if part]
    return [*named, package / "weights", package.parent / "weights", Path("weights")]


def available() -> Iterator[tuple[str, Path]]:
    """Names and folders of all bundles on the search path. Of two with one name, the first is taken."""
    seen = set()
    for parent in search_path():
        try:
            folders = [folder for folder in sorted(parent.iterdir()) if (folder / MANIFEST).is_file()]
        except OSError:  # not there, or not allowed to look
            continue
        for folder in folders:
            if not folder.name.startswith(".") and folder.name not in seen:
                seen.add(folder.name)
                yield folder.name, folder


def find(name: str | Path) -> Path:
    """The folder of a model, by its name or its path."""
    path = Path(name).expanduser()
    if path.name != str(name) or (path / MANIFEST).is_file():
        if not path.is_dir():
            raise UsageError(
                f"{path}: no such folder; give a bundle's folder or a model's name (see `captioner models`)"
            )
        return path
    names = dict(available())
    if str(name) in names:
        return names[str(name)]
    searched = ", ".join(str(parent) for parent in search_path())
    if not names:
        raise UsageError(
            f"unknown model {str(name)!r}: there is no model in any of {searched}. "
            "Set CAPTIONER_WEIGHTS to a folder of bundles or give a bundle's folder."
        )
    raise UsageError(f"{unknown('model', str(name), names)} Searched: {searched}.")


__all__ = ["FORMAT", "Bundle", "available", "find", "load", "read_manifest", "search_path", "write"]
