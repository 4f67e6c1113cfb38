"""Verification: a file of a bundle is what the manifest says, and reads nothing that the manifest doesn't list."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from captioner.bundle.layout import MANIFEST
from captioner.bundle.manifest import FileRecord, other_bundle
from captioner.bundle.onnx_graph import Graph, read_graph
from captioner.bundle.protobuf import ProtobufError
from captioner.errors import CaptionerError

GRAPH_LIMIT = 500_000_000  # bytes; the weights of a graph are in a file of their own


def verify(folder: Path, name: str, record: FileRecord, listed: Collection[str]) -> Graph | None:
    """Check one file of a bundle: where it is, its size, its checksum, and the files that a graph refers to.

    Returns what a graph takes and gives; None for other files.
    """
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
    if path.is_symlink() or path.resolve().parent != home.resolve():
        raise CaptionerError(f"{folder}: {name} is a link, which is not followed; put the file itself there")
    size = path.stat().st_size
    if other is not None and (size != record.size or sha256(path) != record.sha256):
        raise CaptionerError(
            f"{folder}: {name} is not the file that this bundle was made with; the bundle {other!r} was replaced, or "
            "the file is damaged: the checksum is not the manifest's"
        )
    if size != record.size:
        raise CaptionerError(
            f"{folder}: {name} has {size:,} bytes where the manifest says {record.size:,}; "
            "the file is damaged or from another bundle"
        )
    graph = None
    if path.suffix == ".onnx":
        if size > GRAPH_LIMIT:
            raise CaptionerError(f"{folder}: {name} has {size:,} bytes, too many for a graph")
        graph = path.read_bytes()
    if (sha256(path) if graph is None else hashlib.sha256(graph).hexdigest()) != record.sha256:
        raise CaptionerError(
            f"{folder}: the checksum of {name} is not the manifest's; the file is damaged or was changed"
        )
    return None if graph is None else _checked_graph(folder, name, graph, listed)


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


def _checked_graph(folder: Path, name: str, data: bytes, listed: Collection[str]) -> Graph:
    """A graph that is well formed and takes weights only from files beside it that the manifest lists."""
    try:
        graph = read_graph(data)
    except ProtobufError as error:
        raise CaptionerError(f"{folder}: {name} is not a graph that captioner runs ({error})") from None
    for location in sorted(graph.external_files):
        listed_name = str(PurePosixPath(name).parent / location)
        if PurePosixPath(location).name != location or listed_name not in listed:
            raise CaptionerError(f"{folder}: {name} reads weights from {location!r}, which the manifest does not list")
    return graph
