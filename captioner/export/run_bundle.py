"""A training run becomes a bundle, checked against the torch network before it is called done."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from captioner import __version__
from captioner.bundle import storage as bundle
from captioner.bundle.manifest import EncoderRecord, Manifest
from captioner.errors import CaptionerError, UsageError
from captioner.export.int8 import quantise_convolutions, quantise_products
from captioner.export.onnx_graphs import WEIGHTS, export_graphs
from captioner.images.reading import load
from captioner.inference.backend import Backend
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, force, search
from captioner.inference.torch_backend import TorchBackend, load_backend
from captioner.train.config import Config
from captioner.train.loaded_run import LoadedRun, load_best, load_last
from captioner.train.splits import read_split

CALIBRATION = 64  # pictures
CHECKED = SearchOptions(beam=3, max_length=12)
TOLERANCE = 1e-4  # of alpha, between onnxruntime and torch
GRAPHS = ("encoder.onnx", "begin.onnx", "decoder.onnx")


def export_run(
    run: Path,
    out: Path,
    *,
    name: str | None = None,
    training_data: str = "",
    licence: str = "Apache-2.0",
    card: Path | None = None,
    evaluation: Path | None = None,
    int8: bool = False,
    last: bool = False,
) -> bundle.Bundle:
    """Write the best weights of a run, or its last, as a bundle; its scores are those of `evaluation`, where given."""
    loaded = load_last(run) if last else load_best(run)
    manifest = _manifest(loaded, name, training_data, licence)
    if evaluation is not None:
        manifest = _scored(manifest, evaluation)
    pictures = _pictures(loaded.config) if int8 else None
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_graphs(loaded.network, folder)
        if pictures is not None:
            _add_int8(folder, pictures)
        files: dict[str, Path | bytes] = {path.name: path for path in (*folder.glob("*.onnx"), folder / WEIGHTS)}
        files["README.md"] = card or _card(manifest, loaded).encode()
        # Verified in a place of its own, so that a bundle that fails never stands where it was asked for.
        trial = bundle.write(folder / "trial", files, manifest, loaded.vocabulary)
        check_parity(trial)
        if int8:
            int8_loss(trial)  # that these graphs run at all
        return bundle.write(out, files, manifest, loaded.vocabulary)


def check_parity(made: bundle.Bundle) -> float:
    """The largest difference of alpha between the two backends on noise pictures; too much is an error."""
    pixels = _noise(made)
    light: Backend = OnnxBackend(made)
    torch_backend: TorchBackend = load_backend(made, "cpu")
    found = []
    for backend in (light, torch_backend):
        found.append([best[0] for best in search(backend, backend.encode(pixels), CHECKED)])
    worst = 0.0
    for ours, theirs in zip(*found, strict=True):
        if ours.words != theirs.words:
            raise CaptionerError("export: onnxruntime and torch give other captions for the same weights")
        worst = max(worst, float(np.abs(ours.alphas - theirs.alphas).max(initial=0.0)))
    if worst > TOLERANCE:
        raise CaptionerError(f"export: alpha differs by {worst:.1e} between onnxruntime and torch")
    return worst


def _pictures(config: Config) -> Iterator[NDArray[np.uint8]]:
    """Training pictures, from all over the set, by which the 8-bit encoder's ranges are set."""
    some = config.data.model_copy(update={"allow_missing": True})
    try:
        items = read_split(config.model_copy(update={"data": some}), "train").items
    except CaptionerError as error:
        raise UsageError(f"--int8 needs some of the pictures that the run was trained on: {error}") from None
    chosen = items[:: max(1, len(items) // CALIBRATION)][:CALIBRATION]
    return (load(item.path, config.encoder.size)[1] for item in chosen)


def _add_int8(folder: Path, pictures: Iterator[NDArray[np.uint8]]) -> None:
    """8-bit copies of all three graphs, beside them."""
    encoder, *rest = (folder / graph for graph in GRAPHS)
    quantise_convolutions(encoder, folder / bundle.int8_graph(encoder.name), pictures)
    for graph in rest:
        quantise_products(graph, folder / bundle.int8_graph(graph.name))


def int8_loss(made: bundle.Bundle) -> float:
    """By how much the 8-bit graphs change a word's log-probability, at most, on the captions of noise pictures."""
    exact, rough = OnnxBackend(made), OnnxBackend(made, int8=True)
    pixels = _noise(made)
    captions = [[list(found[0].words)] for found in search(exact, exact.encode(pixels), CHECKED)]
    told = [force(backend, backend.encode(pixels), captions) for backend in (exact, rough)]
    differences = [np.abs(a.log_probabilities - b.log_probabilities).max() for (a,), (b,) in zip(*told, strict=True)]
    return float(max(differences))


def _noise(made: bundle.Bundle) -> NDArray[np.uint8]:
    size = made.manifest.encoder.image_size
    return np.random.default_rng(0).integers(0, 256, (4, size, size, 3), dtype=np.uint8)


def _manifest(loaded: LoadedRun, name: str | None, training_data: str, licence: str) -> Manifest:
    config, network, scores = loaded.config, loaded.network, loaded.state.get("scores", {})
    rows, cols = network.encoder.grid()
    mean, std = (tuple(getattr(network.encoder, k).flatten().tolist()) for k in ("mean", "deviation"))
    validation = config.training.validation
    note = validation.search.summary
    return Manifest(
        name=name or config.name,
        attention="hard" if network.decoder.hard else "soft",
        encoder=EncoderRecord(config.encoder.name, config.encoder.size, rows, cols, network.encoder.size, mean, std),
        training_data=training_data or ", ".join(str(source.captions) for source in config.data.train),
        licence=licence,
        scores={k: round(v, 2) for k, v in scores.items()},
        scored_on=f"validation while training, {validation.images or 'all'} images, {note}" if scores else "",
        decoding=validation.search,
        settings={
            # Weights are in the bundle: where the training took the encoder's from doesn't matter any more.
            "encoder": config.encoder.model_copy(update={"weights": "none"}).model_dump(mode="json"),
            "model": config.model.model_dump(mode="json"),
        },
        created_by=f"captioner {__version__}",
    )


def _scored(manifest: Manifest, evaluation: Path) -> Manifest:
    """With the scores that `captioner evaluate --json` printed, if it searched as the bundle will."""
    try:
        found = json.loads(evaluation.read_text(encoding="utf-8"))
        scores = {name: float(score) for name, score in found["scores"].items()}
        search_options = SearchOptions.from_json(found["search"])
        scored_on = f"{found['data']}, split {found['split']}, {found['images']:,} images, {search_options.summary}"
    except (ValueError, KeyError, TypeError, AttributeError, UsageError):
        raise UsageError(f"--evaluation: {evaluation} is not what `captioner evaluate --json` prints") from None
    evaluated, bundled = (
        asdict(replace(options, hard_attention=options.hard_attention or "expected"))
        for options in (search_options, manifest.decoding)
    )
    differences = [
        f"{name} {value} (bundle: {bundled[name]})" for name, value in evaluated.items() if value != bundled[name]
    ]
    if differences:
        raise UsageError(
            f"--evaluation: {evaluation} was searched with other options than the bundle: {', '.join(differences)}"
        )
    return replace(manifest, scores={name: round(score, 2) for name, score in scores.items()}, scored_on=scored_on)


def _card(manifest: Manifest, loaded: LoadedRun) -> str:
    """A plain model card; shipped models bring a fuller one."""
    rows = "".join(f"| {k} | {v:.1f} |\n" for k, v in manifest.scores.items())
    scores = f"| score | {manifest.scored_on} |\n|---|---|\n{rows}" if rows else "Not scored.\n"
    return (
        f"# {manifest.name}\n\n"
        f"{manifest.attention.capitalize()} attention on {manifest.encoder.name} at {manifest.encoder.image_size} "
        f"pixels, {manifest.encoder.rows}x{manifest.encoder.cols} places. Trained on {manifest.training_data}, seed "
        f"{loaded.config.seed}, {loaded.state.get('epoch', '?')} epochs.\n\n{scores}"
    )
