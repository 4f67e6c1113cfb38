"""From a training run to a bundle, whose graphs are compared with the torch network before it is written."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from captioner import __version__
from captioner.bundle.layout import CARD, CONFIDENCE, ENCODER, WEIGHTS
from captioner.bundle.loading import Bundle, load_bundle
from captioner.bundle.manifest import FORMAT, EncoderRecord, Manifest, other_bundle
from captioner.bundle.writing import check_replaceable, write_bundle
from captioner.errors import CaptionerError, UsageError
from captioner.export.int8 import quantize_graphs
from captioner.export.licences import licence_of
from captioner.export.onnx_graphs import export_graphs, stored_tensors
from captioner.files.existing import check_unoccupied
from captioner.images import inputs
from captioner.images.reading import load_for_model
from captioner.inference.backend import Backend
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, force, search
from captioner.inference.torch_backend import load_backend
from captioner.model.network import Network
from captioner.model.weights import ENCODER_PREFIX, bundle_tensors, load_network
from captioner.text.vocabulary import Vocabulary
from captioner.train.config import Config
from captioner.train.loaded_run import LoadedRun, load_best, load_last
from captioner.train.splits import read_split

CALIBRATION_PICTURES = 64
CHECKED_PICTURES = 4
FLOAT_STAGES = 2  # stages of the encoder that the 8-bit graphs compute with floats: the stem and the first stage
CHECK_OPTIONS = SearchOptions(beam=3, max_length=12)
FEW_IMAGES = 200  # validated images below which a score is rough
TOLERANCE = 1e-4  # largest difference of alpha between onnxruntime and torch


def export_run(
    run: Path,
    out: Path,
    *,
    name: str | None = None,
    training_data: str = "",
    licence: str | None = None,
    card: Path | None = None,
    evaluation: Path | None = None,
    int8: bool = False,
    pictures: Path | None = None,
    encoder_of: Path | None = None,
    last: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = print,
) -> Bundle:
    """Write the best weights of a run, or its last ones, as a bundle, with the scores of `evaluation` where given.

    A bundle that exists at `out` is kept, unless `overwrite` is given. The ranges of the 8-bit graphs are measured on
    the `pictures` of a folder, or on those that the run was trained on. With `encoder_of`, the bundle has no encoder of
    its own, but uses that of the bundle in this folder.
    """
    if encoder_of is not None and int8:
        raise UsageError("--encoder-of: a bundle that uses another one's encoder has no 8-bit graphs; leave out --int8")
    check_unoccupied(out, "--output", overwrite=overwrite)
    check_replaceable(out)
    loaded = load_last(run) if last else load_best(run)
    manifest = _manifest(loaded, name, training_data, licence_of(loaded.config, licence))
    if evaluation is not None:
        manifest = _scored(manifest, evaluation)
    if encoder_of is not None:
        encoder = _shared_encoder(loaded.network, manifest.encoder, encoder_of, out, manifest.name)
        manifest = replace(manifest, encoder=encoder)
    pixels = None
    if int8:
        size = loaded.config.encoder.size
        pixels = _pixels(_training_pictures(loaded.config) if pictures is None else _found(pictures), size)
    files: dict[str, Path | bytes] = {CARD: card or _card(manifest, loaded).encode()}
    return _write(out, loaded.network, loaded.vocabulary, manifest, files, pixels, say)


def export_bundle(
    source: Path, out: Path, *, pictures: Path, overwrite: bool = False, say: Callable[[str], None] = print
) -> Bundle:
    """Write a bundle again, with graphs as they are exported now, and with 8-bit graphs.

    The ranges of the 8-bit graphs are measured on the pictures of a folder.
    """
    check_unoccupied(out, "--output", overwrite=overwrite)
    check_replaceable(out)
    bundle = load_bundle(source)
    pixels = _pixels(_found(pictures), bundle.manifest.encoder.image_size)
    encoder = replace(bundle.manifest.encoder, file=ENCODER)  # one that was shared becomes its own
    manifest = replace(bundle.manifest, encoder=encoder, created_by=f"captioner {__version__}", format=FORMAT)
    others = {name: source / name for name in (CARD, CONFIDENCE) if (source / name).is_file()}
    return _write(out, load_network(bundle), bundle.vocabulary, manifest, others, pixels, say)


def _write(
    out: Path,
    network: Network,
    vocabulary: Vocabulary,
    manifest: Manifest,
    others: Mapping[str, Path | bytes],
    pixels: NDArray[np.uint8] | None,
    say: Callable[[str], None],
) -> Bundle:
    """Export a network to a bundle with these `others` among its files, and with 8-bit graphs if there are `pixels`.

    The bundle is checked in a temporary folder first, so that one that fails is never written to `out`.
    """
    other = other_bundle(manifest.encoder.file)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_graphs(network, folder, encoder=other is None)
        if other is not None:
            # where the trial looks for its encoder
            shutil.copytree(out.absolute().parent / other, folder / "models" / other)

        def write(to: Path, manifest: Manifest) -> Bundle:
            files = {path.name: path for path in (*folder.glob("*.onnx"), folder / WEIGHTS)}
            return write_bundle(to, {**files, **others}, manifest, vocabulary)

        trial_folder = folder / "models" / ".trial"
        trial = write(trial_folder, manifest)
        check_parity(trial)
        if pixels is not None:
            quantize_graphs(trial, folder, pixels, network.encoder.order[:FLOAT_STAGES])
            manifest = replace(manifest, static_int8=True)
            loss = int8_loss(write(trial_folder, manifest), pixels[:CHECKED_PICTURES])
            say(f"8-bit graphs: a word's log-probability differs by up to {loss:.2f}")
        return write(out, manifest)


def _shared_encoder(network: Network, encoder: EncoderRecord, folder: Path, out: Path, name: str) -> EncoderRecord:
    """The encoder of another bundle, which must be the same and lie beside the new one."""
    folder, out = (Path(os.path.abspath(path)) for path in (folder, out))  # noqa: PTH100 (resolve would follow a link)
    if folder.parent != out.parent or folder == out:
        raise UsageError(f"--encoder-of: {folder} must be a folder beside {out}")
    shared = replace(encoder, file=f"../{folder.name}/{ENCODER}")
    if other_bundle(shared.file) is None:
        raise UsageError(
            f"--encoder-of: {folder.name!r} can't be in a manifest; rename the folder to letters and digits"
        )
    if name == folder.name:
        raise UsageError(f"--encoder-of: {folder} has the name of the new model; give it another one with --name")
    other = load_bundle(folder)
    if other_bundle(other.manifest.encoder.file) is not None:
        raise UsageError(f"--encoder-of: {folder} has no encoder of its own; name the bundle that it uses")
    ours = {name: tensor for name, tensor in stored_tensors(network).items() if name.startswith(ENCODER_PREFIX)}
    theirs = bundle_tensors(other)
    same = all(name in theirs and torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    if not same or replace(other.manifest.encoder, file=encoder.file) != encoder:
        raise UsageError(
            f"--encoder-of: the encoder of {folder} is not that of the run; a run that never trains it "
            "(training.tune.end_epoch=0) keeps the encoder that it starts from"
        )
    return shared


def check_parity(exported: Bundle) -> float:
    """Compare the backends on noise pictures, and return the largest difference of alpha.

    Other captions, or a difference above `TOLERANCE`, are an error.
    """
    size = exported.manifest.encoder.image_size
    pixels = np.random.default_rng(0).integers(0, 256, (CHECKED_PICTURES, size, size, 3), dtype=np.uint8)
    backends: tuple[Backend, Backend] = OnnxBackend(exported), load_backend(exported, "cpu")
    captions = [
        [hypotheses[0] for hypotheses in search(backend, backend.encode(pixels), CHECK_OPTIONS)] for backend in backends
    ]
    largest = 0.0
    for in_onnx, in_torch in zip(*captions, strict=True):
        if in_onnx.words != in_torch.words:
            raise CaptionerError("export: onnxruntime and torch give different captions for the same weights")
        largest = max(largest, float(np.abs(in_onnx.alphas - in_torch.alphas).max(initial=0.0)))
    if largest > TOLERANCE:
        raise CaptionerError(f"export: alpha differs by {largest:.1e} between onnxruntime and torch")
    return largest


def _training_pictures(config: Config) -> list[Path]:
    data = config.data.model_copy(update={"allow_missing": True})
    try:
        items = read_split(config.model_copy(update={"data": data}), "train").items
    except CaptionerError as error:
        raise UsageError(f"--int8 needs some of the pictures that the run was trained on: {error}") from None
    return [item.path for item in items]


def _found(folder: Path) -> list[Path]:
    """The pictures in a folder and the folders inside it."""
    return [Path(path) for path in inputs.find([str(folder)], recursive=True).pictures if isinstance(path, str)]


def _pixels(paths: Sequence[Path], size: int) -> NDArray[np.uint8]:
    """The pixels of some of the pictures, at equal distances, to measure the ranges of the 8-bit graphs."""
    paths = paths[:: max(1, len(paths) // CALIBRATION_PICTURES)][:CALIBRATION_PICTURES]
    return np.stack([load_for_model(path, size)[1] for path in paths])


def int8_loss(exported: Bundle, pixels: NDArray[np.uint8]) -> float:
    """The largest change of a word's log-probability by the 8-bit graphs, on captions of these pictures."""
    exact, rough = OnnxBackend(exported), OnnxBackend(exported, int8=True)
    captions = [[list(hypotheses[0].words)] for hypotheses in search(exact, exact.encode(pixels), CHECK_OPTIONS)]
    forced = [force(backend, backend.encode(pixels), captions) for backend in (exact, rough)]
    differences = [np.abs(a.log_probabilities - b.log_probabilities).max() for (a,), (b,) in zip(*forced, strict=True)]
    return float(max(differences))


def _manifest(loaded: LoadedRun, name: str | None, training_data: str, licence: str) -> Manifest:
    config, network, scores = loaded.config, loaded.network, loaded.state.get("scores", {})
    rows, cols = network.encoder.grid()
    mean, std = (tuple(getattr(network.encoder, k).flatten().tolist()) for k in ("mean", "deviation"))
    validation = config.training.validation
    note = config.decoding.summary
    # Runs of version 0.1 did not record how many images they validated on.
    images = f"{loaded.state['images']:,}" if "images" in loaded.state else f"up to {validation.images or 'all'}"
    return Manifest(
        name=name or config.name,
        attention="hard" if network.decoder.hard else "soft",
        encoder=EncoderRecord(config.encoder.name, config.encoder.size, rows, cols, network.encoder.size, mean, std),
        training_data=training_data or ", ".join(str(source.captions) for source in config.data.train),
        licence=licence,
        scores={k: round(v, 2) for k, v in scores.items()},
        scored_on=f"validation while training, {images} images, {note}" if scores else "",
        decoding=config.decoding,
        settings={
            # The bundle contains all weights, so it does not matter where the encoder's came from.
            "encoder": config.encoder.model_copy(update={"weights": "none"}).model_dump(mode="json"),
            "model": config.model.model_dump(mode="json"),
        },
        created_by=f"captioner {__version__}",
    )


def _scored(manifest: Manifest, evaluation: Path) -> Manifest:
    """The manifest with the scores that `captioner evaluate --json` printed, for the search options of the bundle."""
    try:
        report = json.loads(evaluation.read_text(encoding="utf-8"))
        scores = {name: float(score) for name, score in report["scores"].items()}
        search_options = SearchOptions.from_json(report["search"])
        scored_on = f"{report['data']}, split {report['split']}, {report['images']:,} images, {search_options.summary}"
    except (ValueError, KeyError, TypeError, AttributeError, UsageError):
        raise UsageError(f"--evaluation: {evaluation} is not an output of `captioner evaluate --json`") from None
    evaluated, bundled = (
        asdict(replace(options, hard_attention=options.hard_attention or "expected"))
        for options in (search_options, manifest.decoding)
    )
    differences = [
        f"{name} {value} (bundle: {bundled[name]})" for name, value in evaluated.items() if value != bundled[name]
    ]
    if differences:
        raise UsageError(
            f"--evaluation: {evaluation} was made with other search options than the bundle's: {', '.join(differences)}"
        )
    return replace(manifest, scores={name: round(score, 2) for name, score in scores.items()}, scored_on=scored_on)


def _card(manifest: Manifest, loaded: LoadedRun) -> str:
    """A short model card, for runs without one."""
    rows = "".join(f"| {k} | {v:.1f} |\n" for k, v in manifest.scores.items())
    scores = f"| score | {manifest.scored_on} |\n|---|---|\n{rows}" if rows else "Not scored.\n"
    return (
        f"# {manifest.name}\n\n"
        f"{manifest.attention.capitalize()} attention on {manifest.encoder.name} at {manifest.encoder.image_size} "
        f"pixels, {manifest.encoder.rows}x{manifest.encoder.cols} cells. Trained on {manifest.training_data}, seed "
        f"{loaded.config.seed}, {loaded.state.get('epoch', '?')} epochs{_start(loaded.config)}. Licence: "
        f"{manifest.licence}.\n\n{scores}{_honesty(loaded)}"
    )


def _start(config: Config) -> str:
    start = config.training.start_from
    return f", starting from the model {start.name}" if start is not None else ""


def _honesty(loaded: LoadedRun) -> str:
    """What the scores do not say."""
    images = loaded.state.get("images")
    if not loaded.state.get("scores") or images is None:
        return ""
    lines = [
        "These weights were chosen by this score, out of all epochs: on other pictures, expect a little less.",
        "The validation pictures come from the same collection as the training pictures.",
    ]
    if images < FEW_IMAGES:
        lines.append(
            f"On {images} images the score is rough: another choice of images could give a very different one."
        )
    if isinstance(loaded.config.data.val, float):
        lines.append(f"{loaded.config.data.val:.0%} of the pictures were kept for validation; `split.json` lists them.")
    return "\n" + "\n".join(f"- {line}" for line in lines) + "\n"
