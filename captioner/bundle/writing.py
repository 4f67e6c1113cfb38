"""Writing a bundle: the folder appears complete or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from captioner.bundle.layout import BUNDLE_FILES, MANIFEST, VOCABULARY, WEIGHTS
from captioner.bundle.loading import Bundle, load_bundle, read_manifest
from captioner.bundle.manifest import Manifest, other_bundle
from captioner.bundle.verification import file_record
from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import write_atomically
from captioner.files.existing import check_only_own_files, is_occupied
from captioner.files.folders import new_folder
from captioner.text.vocabulary import Vocabulary


def write_bundle(folder: Path, files: Mapping[str, Path | bytes], manifest: Manifest, vocabulary: Vocabulary) -> Bundle:
    """Write a bundle to a temporary folder, verify it, and give it its name. An older bundle of that name is replaced.

    `files` are all files but the manifest and the vocabulary. Sizes and checksums are filled in here.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 (resolve would follow a link)
    with new_folder(folder, MANIFEST, check=check_replaceable, left_files=BUNDLE_FILES) as new:
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
        load_bundle(new)
    return Bundle(folder, manifest, vocabulary)


def check_replaceable(folder: Path) -> list[str]:
    """Refuse a folder that holds anything but a bundle. Returns the files of the bundle that is there, if any."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder}: a {'link' if folder.is_symlink() else 'file'}, not a folder; give another folder")
    if not is_occupied(folder):
        return []
    try:
        manifest = read_manifest(folder)
    except CaptionerError as error:
        raise UsageError(f"{folder} exists and is not a bundle, so it is not replaced ({error})") from None
    own_files = [MANIFEST, *(name for name in manifest.files if other_bundle(name) is None)]
    check_only_own_files(folder, own_files, "bundle")
    return own_files


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Add a file to a bundle, or replace it. Its record in the manifest changes, and nothing else."""
    load_bundle(folder)
    write_atomically(folder / name, content)
    values = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    values["files"][name] = asdict(file_record(folder / name))
    write_atomically(folder / MANIFEST, json.dumps(values, ensure_ascii=False, indent=2) + "\n")
