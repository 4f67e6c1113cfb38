"""Writing a folder that captions in the browser, from any static host:

index.html, *.css, *.js     the page and the scripts; captioner.js is the interface for other pages
captioner.json              what the folder contains: size and SHA-256 of every file, and the model's search options
model/NAME/                 the bundle without its 8-bit graphs
runtime/                    onnxruntime-web
service_worker.js, release.js, app.webmanifest, icon-*.png    the page as an app that works without a network
package.json, *.d.ts, README.md, LICENSE                      the folder as an npm package
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any

from captioner import __version__
from captioner.bundle.layout import BEGIN, CARD, CONFIDENCE, DECODER, MANIFEST, VOCABULARY, WEIGHTS
from captioner.bundle.loading import Bundle, load_bundle
from captioner.bundle.manifest import other_bundle
from captioner.bundle.model_folders import find_model
from captioner.captioning import Captioner
from captioner.errors import UsageError
from captioner.files.existing import check_only_own_files, check_unoccupied, is_occupied
from captioner.files.folders import new_folder
from captioner.images.reading import DRAFT
from captioner.options import SearchOptions
from captioner.text.nouns import FUNCTION_WORDS
from captioner.web.index_page import ICON_SIZES, ISOLATION, POLICY, app_manifest, icon, index_page
from captioner.web.onnxruntime_web import LICENCE, VERSION, runtime_files
from captioner.web.photo_page import SCRIPTS, STYLE_SHEETS
from captioner.web.reference_captions import reference_captions

FORMAT = 1
_FREE = "Apache-2.0"  # the licence of the scripts
SETTINGS, RELEASE = "captioner.json", "release.js"
PIXEL_LIMIT = (
    120_000_000  # a browser needs four bytes for each, and a tab may end without a message if there are too few
)
_OWN_SCRIPTS = (
    *("browser_page.js", "caption_view.js", "captioner.js", "captioner_worker.js", "web_files.js"),
    *("beam_search.js", "constraints.js", "search_options.js", "graph_backend.js", "confidence.js", "sentences.js"),
    *("reading.js", "picture_header.js", "jpeg_coefficients.js", "jpeg_reduction.js", "resampling.js"),
    *("checksum.js", "service_worker.js"),
)
# Of the scripts that other pages import.
_TYPES = ("captioner.web/captioner.d.ts", "captioner.web/caption_view.d.ts", "captioner.overlay/viewer.d.ts")
_WASM = {
    "script": "runtime/ort.wasm.min.js",
    "loader": "runtime/ort-wasm-simd-threaded.js",
    "binary": "runtime/ort-wasm-simd-threaded.wasm",
    "encoder_providers": ["wasm"],
    "check": False,
}
# The encoder runs on the GPU. A decoding step is too small for it: moving its numbers takes longer than computing them.
_WEBGPU = {
    "script": "runtime/ort.jspi.min.js",
    "loader": "runtime/ort-wasm-simd-threaded.jspi.js",
    "binary": "runtime/ort-wasm-simd-threaded.jspi.wasm",
    "encoder_providers": ["webgpu"],
    "check": True,
}
# Not part of the page: the service worker does not keep them. The page keeps the model and the runtime itself.
_NOT_OF_THE_PAGE = (
    *(asset.rpartition("/")[2] for asset in _TYPES),
    "package.json",
    "README.md",
    "LICENSE",
    "service_worker.js",
    "runtime/LICENSE.txt",
)


def write_web_folder(
    model: str | Path, folder: Path, *, overwrite: bool = False, onnxruntime_web: Path | None = None
) -> dict[str, int]:
    """Write the folder. Returns the sizes of its files, in bytes.

    `onnxruntime_web` is a folder with the files of that npm package; without it they come from npm.
    """
    check_unoccupied(folder, "--output", overwrite=overwrite)
    _check_replaceable(folder)  # before the work; the writer asks again
    bundle = load_bundle(find_model(model))
    _check_decoding(bundle)
    runtime = runtime_files(onnxruntime_web)
    contents: dict[str, bytes] = {
        **_page_files(bundle),
        **_model_files(bundle),
        **{_runtime_path(name): path.read_bytes() for name, path in runtime.items()},
        "runtime/LICENSE.txt": LICENCE.encode(),
    }
    settings = _settings(bundle, contents)
    contents[SETTINGS] = _json(settings)
    contents[RELEASE] = _release(contents)
    with new_folder(folder, SETTINGS, check=_check_replaceable, left_files=("*",)) as new:
        for name, content in contents.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
    return {name: len(content) for name, content in contents.items()}


def _runtime_path(name: str) -> str:
    """Where a file of onnxruntime-web is in the folder. Some hosts don't know that .mjs is JavaScript."""
    return f"runtime/{name.removesuffix('.mjs')}.js" if name.endswith(".mjs") else f"runtime/{name}"


def check_web_folder(folder: Path) -> None:
    """Refuse a folder that is none of `captioner web`."""
    if not (folder / SETTINGS).is_file():
        raise UsageError(f"{folder}: not a folder of `captioner web`, because it has no {SETTINGS}")


def _check_replaceable(folder: Path) -> list[str]:
    """Refuse a folder that holds anything else. Returns the files of the web folder that is there, if any."""
    if not is_occupied(folder):
        return []
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        own_files = [SETTINGS, RELEASE, *map(str, settings["files"])]
    except (OSError, ValueError, LookupError, TypeError):
        raise UsageError(f"{folder} exists and was not written by `captioner web`, so it is not replaced") from None
    check_only_own_files(folder, own_files, "web folder")
    return own_files


def _check_decoding(bundle: Bundle) -> None:
    """Refuse a model whose default search the scripts don't have: anything random, and diverse search."""
    decoding = bundle.manifest.decoding
    if decoding.sample or decoding.groups > 1 or decoding.hard_attention == "sampled":
        raise UsageError(
            f"the model {bundle.manifest.name!r} samples or uses diverse beam search by default ({decoding.summary}), "
            "which a browser can't do; change `decoding` in its manifest"
        )


def _page_files(bundle: Bundle) -> dict[str, bytes]:
    """The page, the scripts, and what makes the folder an app and a package."""
    name = bundle.manifest.name
    files = {}
    for asset in (*SCRIPTS, *STYLE_SHEETS, *(f"captioner.web/{script}" for script in _OWN_SCRIPTS), *_TYPES):
        package, _, file = asset.rpartition("/")
        files[file] = resources.files(package or "captioner.overlay").joinpath(file).read_bytes()
    style_sheets = tuple(asset.rpartition("/")[2] for asset in STYLE_SHEETS)
    files["index.html"] = index_page(name, style_sheets).encode()
    files["app.webmanifest"] = app_manifest(name).encode()
    files |= {f"icon-{size}.png": icon(size) for size in ICON_SIZES}
    files["README.md"] = _readme(bundle).encode()
    files["LICENSE"] = _licence(bundle).encode()
    files["package.json"] = _json(_package(bundle))
    return files


def _model_files(bundle: Bundle) -> dict[str, bytes]:
    """The bundle without its 8-bit graphs, and the encoder of a neighbouring bundle where it uses one."""
    manifest, home = bundle.manifest, f"model/{bundle.manifest.name}"
    other = other_bundle(manifest.encoder.file)
    wanted = {manifest.encoder.file, BEGIN, DECODER, VOCABULARY, WEIGHTS, CONFIDENCE, CARD, f"../{other}/{WEIGHTS}"}
    records = {name: record for name, record in manifest.files.items() if name in wanted}
    values = manifest.to_json() | {"files": {name: asdict(record) for name, record in records.items()}}
    files = {f"{home}/{MANIFEST}": _json(values)}
    if other is not None:
        files[f"model/{other}/{MANIFEST}"] = (bundle.folder.parent / other / MANIFEST).read_bytes()
    for name in records:
        at = f"model/{name.removeprefix('../')}" if other_bundle(name) else f"{home}/{name}"
        files[at] = (bundle.folder / name).read_bytes()
    return files


def _settings(bundle: Bundle, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """captioner.json."""
    return {
        "format": FORMAT,
        "created_by": f"captioner {__version__}",
        "model": bundle.manifest.name,
        "model_files": [name for name in contents if name.startswith("model/") and not name.endswith(CARD)],
        "search": _search_table(bundle.manifest.decoding),
        "function_words": sorted(FUNCTION_WORDS),
        "pixel_limit": PIXEL_LIMIT,
        "draft": DRAFT,
        "onnxruntime_web": VERSION,
        "runtimes": {"wasm": _WASM, "webgpu": _WEBGPU},
        "checks": reference_captions(Captioner.load(bundle.folder)),
        "files": {name: {"size": len(data), "sha256": sha256(data).hexdigest()} for name, data in contents.items()},
    }


def _search_table(decoding: SearchOptions) -> dict[str, Any]:
    """The model's search options with their limits, by their names."""
    return {
        option.name: {"value": getattr(decoding, option.name), **{k: option.metadata[k] for k in ("least", "most")}}
        for option in fields(decoding)
    }


def _release(contents: Mapping[str, bytes]) -> bytes:
    """What the service worker keeps. A change of any file changes this one, by which browsers find the new version."""
    page = {
        name: sha256(data).hexdigest()
        for name, data in contents.items()
        if name not in _NOT_OF_THE_PAGE and not name.startswith("model/") and not name.endswith(".wasm")
    }
    headers = {**ISOLATION, "Content-Security-Policy": POLICY}
    release = {"version": page[SETTINGS][:16], "files": page, "headers": headers}
    return b"self.RELEASE = " + _json(release).strip() + b";\n"


def _package(bundle: Bundle) -> dict[str, Any]:
    """package.json: the folder as a package for npm."""
    return {
        "name": f"captioner-{bundle.manifest.name.lower()}",
        "version": __version__,
        "description": f"Captions for pictures in the browser, with the model {bundle.manifest.name}",
        "keywords": ["image captioning", "attention", "onnxruntime-web", "alt text"],
        "license": _FREE if bundle.manifest.licence == _FREE else "SEE LICENSE IN LICENSE",
        "type": "module",
        "main": "./captioner.js",
        "types": "./captioner.d.ts",
        "exports": {".": {"types": "./captioner.d.ts", "default": "./captioner.js"}, "./*": "./*"},
        "sideEffects": ["./browser_page.js", "./captioner_worker.js", "./service_worker.js", "./release.js"],
    }


def _readme(bundle: Bundle) -> str:
    manifest = bundle.manifest
    return f"""# captioner in the browser: {manifest.name}

Put this folder on any web server and open `index.html`, or use it in a page of your own:

```js
import {{ Captioner }} from "./captioner.js";
const captioner = await Captioner.load();
console.log((await captioner.caption(file)).sentence);
```

Pictures are captioned on the device and sent nowhere. Nothing is loaded from other hosts.

- Scripts: captioner {__version__}, Apache-2.0
- Model: {manifest.name}, {manifest.licence}, trained on {manifest.training_data}; [card](model/{manifest.name}/{CARD})
- Runtime: onnxruntime-web {VERSION}, [MIT](runtime/LICENSE.txt)
"""


def _licence(bundle: Bundle) -> str:
    """LICENSE: the parts of the folder have licences of their own."""
    manifest = bundle.manifest
    return f"""The parts of this folder have licences of their own:

model/: {manifest.licence}; model/{manifest.name}/{CARD} has the details
runtime/: onnxruntime-web, MIT; runtime/LICENSE.txt is its text
all other files: captioner, Apache-2.0; https://www.apache.org/licenses/LICENSE-2.0 is its text
"""


def _json(content: object) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()
