"""Verification: a file of a bundle is what the manifest says, and reads nothing that the manifest doesn't list."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from captioner.bundle.layout import MANIFEST
from captioner.bundle.manifest import FileRecord, other_bundle
from captioner.errors import CaptionerError


def verify(folder: Path, name: str, record: FileRecord, listed: Collection[str]) -> None:
    """Check one file of a bundle: where it is, its size, its checksum, and the files that a graph refers to."""
    path, home = folder / name, folder.resolve()
    if (other := other_bundle(name)) is not None:
        home = home.parent / other
        path = home / Path(name).name
        if not (home / MANIFEST).is_file():
            raise CaptionerError(
                f"{folder}: its encoder is in the bundle {other!r}, which is not beside it; put that bundle there too"
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
    if sha256(path) != record.sha256:
        raise CaptionerError(
            f"{folder}: the checksum of {name} is not the manifest's; the file is damaged or was changed"
        )
    if path.suffix == ".onnx":
        _verify_references(folder, name, path.read_bytes(), listed)


def file_record(path: Path) -> FileRecord:
    """Size and checksum of a file, for the manifest."""
    if not path.is_file():
        raise CaptionerError(f"{path}: missing, but the bundle needs it")
    return FileRecord(path.stat().st_size, sha256(path))


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _verify_references(folder: Path, name: str, graph: bytes, listed: Collection[str]) -> None:
    """A graph may take weights only from files beside it that the manifest lists."""
    for location in _external_files(graph):
        listed_name = str(PurePosixPath(name).parent / location)
        if "/" in location or listed_name not in listed:
            raise CaptionerError(f"{folder}: {name} reads weights from {location!r}, which the manifest does not list")


def _external_files(graph: bytes) -> set[str]:
    """The files that an ONNX graph takes weights from: values of the key `location`, as protobuf encodes them.

    Read without the package onnx, which the run half doesn't need.
    """
    locations = set()
    for match in re.finditer(rb"\n\x08location\x12", graph):
        size, shift, at = 0, 0, match.end()
        while at < len(graph):
            size |= (graph[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if graph[at - 1] < 0x80:
                break
        locations.add(graph[at : at + size].decode("utf-8", errors="replace"))
    return locations
