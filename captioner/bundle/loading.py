"""Loading a bundle: the manifest, the verified files and the vocabulary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from captioner.bundle.graph_signatures import check_signatures
from captioner.bundle.layout import BEGIN, CARD, DECODER, MANIFEST, VOCABULARY, int8_graph
from captioner.bundle.manifest import Manifest, other_bundle
from captioner.bundle.verification import verify
from captioner.errors import CaptionerError
from captioner.text.vocabulary import Vocabulary

MANIFEST_LIMIT = 10_000_000  # bytes; no manifest is that large


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files have been verified."""

    folder: Path
    manifest: Manifest
    vocabulary: Vocabulary
    unverified: frozenset[str] = frozenset()  # files that were not expected to be used

    def path(self, name: str) -> Path:
        """A file that the manifest lists."""
        if name not in self.manifest.files:
            raise CaptionerError(f"{self.folder}: the bundle has no {name}")
        if name in self.unverified:
            verify(self.folder, name, self.manifest.files[name], self.manifest.files)
        return self.folder / name

    @property
    def size(self) -> int:
        """Bytes of all files in its folder."""
        return sum(record.size for name, record in self.manifest.files.items() if other_bundle(name) is None)


def load_bundle(folder: Path, *, int8: bool | None = None) -> Bundle:
    """Read a bundle and verify every file that is used: all but the model card.

    With `int8`, only its 8-bit graphs will be used; with `int8=False`, only the exact ones.
    """
    try:
        return _load(folder, read_manifest(folder), int8)
    except OSError as error:
        raise CaptionerError(f"{error.filename or folder}: cannot be read ({error.strerror or error})") from None


def _load(folder: Path, manifest: Manifest, int8: bool | None) -> Bundle:
    exact = (manifest.encoder.file, BEGIN, DECODER)
    in_8_bits = tuple(int8_graph(name) for name in exact)
    unverified = {CARD}  # text for readers, which nothing here opens: it may be corrected
    if int8 is not None and all(name in manifest.files for name in in_8_bits):
        unverified.update(exact if int8 else in_8_bits)
    graphs = {}
    for name, record in manifest.files.items():
        if name not in unverified:
            graph = verify(folder, name, record, manifest.files)
            if graph is not None:
                graphs[name] = graph
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    for names, note in ((exact, ""), (in_8_bits, " (8-bit graphs)")):
        if all(name in graphs for name in names):
            signed = dict(zip(exact, (graphs[name] for name in names), strict=True))
            check_signatures(manifest, len(vocabulary), signed, f"{folder}{note}")
    return Bundle(folder, manifest, vocabulary, frozenset(unverified - {CARD}))


def read_manifest(folder: Path) -> Manifest:
    """The manifest, checked for the files that it must list. The files themselves are not opened."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise CaptionerError(f"{folder}: no such folder")
    if not path.is_file():
        raise CaptionerError(f"{folder}: not a bundle, because it has no {MANIFEST}")
    if path.stat().st_size > MANIFEST_LIMIT:
        raise CaptionerError(f"{path}: too large for a manifest")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        manifest = Manifest.from_json(values, str(path))
    except OSError as error:
        raise CaptionerError(f"{path}: cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise CaptionerError(f"{path}: nested too deeply for a manifest") from None
    except ValueError as error:
        raise CaptionerError(f"{path}: not JSON ({error})") from None
    for name in (manifest.encoder.file, BEGIN, DECODER, VOCABULARY):
        if name not in manifest.files:
            raise CaptionerError(f"{path}: the manifest does not list {name}")
    return manifest
