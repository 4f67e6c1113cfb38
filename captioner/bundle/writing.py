"""Writing a bundle: the folder appears complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from captioner.bundle.layout import MANIFEST, VOCABULARY, WEIGHTS
from captioner.bundle.loading import Bundle, load_bundle
from captioner.bundle.manifest import Manifest, other_bundle
from captioner.bundle.verification import file_record
from captioner.errors import UsageError
from captioner.text.vocabulary import Vocabulary


def write_bundle(folder: Path, files: Mapping[str, Path | bytes], manifest: Manifest, vocabulary: Vocabulary) -> Bundle:
    """Write a bundle to a temporary folder, verify it, and give it its name. An older bundle of that name is replaced.

    `files` are all files but the manifest and the vocabulary. Sizes and checksums are filled in here.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve would follow a link)
    if folder.exists() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder}: exists and is not a bundle; give another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = folder.parent / f".{folder.name}.{os.getpid()}.new"
    old = folder.parent / f".{folder.name}.{os.getpid()}.old"
    new.mkdir()
    try:
        for name, content in files.items():
            if isinstance(content, bytes):
                (new / name).write_bytes(content)
            else:
                shutil.copyfile(content, new / name)
        vocabulary.save(new / VOCABULARY)
        records = {path.name: file_record(path) for path in sorted(new.iterdir())}
        if (other := other_bundle(manifest.encoder.file)) is not None:
            records[manifest.encoder.file] = file_record(new / manifest.encoder.file)
            if (folder.parent / other / WEIGHTS).is_file():
                records[f"../{other}/{WEIGHTS}"] = file_record(folder.parent / other / WEIGHTS)
        manifest = replace(manifest, files=records)
        text = json.dumps(manifest.to_json(), ensure_ascii=False, indent=2) + "\n"
        (new / MANIFEST).write_text(text, encoding="utf-8")
        for path in new.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        load_bundle(new)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return Bundle(folder, manifest, vocabulary)
