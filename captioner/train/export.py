"""A training run becomes a bundle, checked against the torch network before it is called done."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from captioner import __version__, bundle
from captioner.backend import Backend
from captioner.errors import CaptionerError, UsageError
from captioner.manifest import Decoding, EncoderRecord, Manifest
from captioner.model.backend import TorchBackend, load_backend
from captioner.model.export import WEIGHTS, export_graphs
from captioner.model.network import Network, load_weights
from captioner.runtime import OnnxBackend
from captioner.search import SearchOptions, search
from captioner.text import Vocabulary
from captioner.train import checkpoint
from captioner.train import config as configs
from captioner.train.config import Config

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
    int8: bool = False,
) -> bundle.Bundle:
    """Write the best weights of a run as a bundle."""
    best = run / "best" / WEIGHTS
    if not best.is_file():
        raise UsageError(f"{run} has no best/{WEIGHTS}: it is not a run that has been validated yet")
    config = configs.load(run / "config.yaml")
    vocabulary = Vocabulary.load(run / "vocabulary.json")
    network = Network(config.encoder, config.model, len(vocabulary), load=False)
    held, state = checkpoint.read(best)
    load_weights(network, held, str(best))
    manifest = _manifest(config, network, name or config.name, training_data, licence, state.get("scores", {}))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_graphs(network, folder)
        if int8:
            _quantise(folder / "decoder.onnx")
        files: dict[str, Path | bytes] = {graph: folder / graph for graph in (*GRAPHS, WEIGHTS)}
        files["README.md"] = card or _card(manifest, config, state).encode()
        # Verified in a place of its own, so that a bundle that fails never stands where it was asked for.
        trial = bundle.write(folder / "trial", files, manifest, vocabulary)
        check_parity(trial, exact=not int8)
        return bundle.write(out, files, manifest, vocabulary)


def check_parity(made: bundle.Bundle, *, exact: bool = True) -> float:
    """The largest difference of alpha between the two backends on noise pictures; too much is an error."""
    size = made.manifest.encoder.image_size
    pixels = np.random.default_rng(0).integers(0, 256, (4, size, size, 3), dtype=np.uint8)
    light: Backend = OnnxBackend(made)
    torch_backend: TorchBackend = load_backend(made, "cpu")
    found = []
    for backend in (light, torch_backend):
        options = SearchOptions(beam=3, max_length=12)
        found.append([best[0] for best in search(backend, backend.encode(pixels), options)])
    worst = 0.0
    for ours, theirs in zip(*found, strict=True):
        if ours.words != theirs.words:
            if exact:
                raise CaptionerError("export: onnxruntime and torch give other captions for the same weights")
            continue
        worst = max(worst, float(np.abs(ours.alphas - theirs.alphas).max(initial=0.0)))
    if exact and worst > TOLERANCE:
        raise CaptionerError(f"export: alpha differs by {worst:.1e} between onnxruntime and torch")
    return worst


def _manifest(
    config: Config, network: Network, name: str, training_data: str, licence: str, scores: dict[str, float]
) -> Manifest:
    rows, cols = network.encoder.grid()
    mean, std = (tuple(getattr(network.encoder, k).flatten().tolist()) for k in ("mean", "deviation"))
    validation = config.training.validation
    return Manifest(
        name=name,
        attention="hard" if network.decoder.hard else "soft",
        encoder=EncoderRecord(config.encoder.name, config.encoder.size, rows, cols, network.encoder.size, mean, std),
        training_data=training_data or ", ".join(str(source.captions) for source in config.data.train),
        licence=licence,
        scores={k: round(v, 2) for k, v in scores.items()},
        scored_on=f"validation while training, {validation.images or 'all'} images, beam {validation.beam}",
        decoding=Decoding(validation.beam, validation.length_power, validation.maximum_length, "expected"),
        settings={
            # Weights are in the bundle: where the training took the encoder's from doesn't matter any more.
            "encoder": config.encoder.model_copy(update={"weights": "none"}).model_dump(mode="json"),
            "model": config.model.model_dump(mode="json"),
        },
        created_by=f"captioner {__version__}",
    )


def _quantise(path: Path) -> None:
    """Matrix products of the decoder in 8 bits, with the activations' ranges taken as they come."""
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # The graph's weights are widened and turned by nodes of its own: only folded into it are they seen as weights.
    folded = path.with_suffix(".folded.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    # A bit less than 8: products of two full ranges overflow where the processor sums them in 16 bits.
    quantize_dynamic(
        *(folded, path),
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        reduce_range=True,
    )


def _card(manifest: Manifest, config: Config, state: dict[str, object]) -> str:
    """A plain model card; shipped models bring a fuller one."""
    scores = "\n".join(f"| {k} | {v:.1f} |" for k, v in manifest.scores.items())
    return (
        f"# {manifest.name}\n\n"
        f"{manifest.attention.capitalize()} attention on {manifest.encoder.name} at {manifest.encoder.image_size} "
        f"pixels, {manifest.encoder.rows}x{manifest.encoder.cols} places. Trained on {manifest.training_data}, seed "
        f"{config.seed}, {state.get('epoch', '?')} epochs.\n\n"
        f"| score | {manifest.scored_on} |\n|---|---|\n{scores}\n"
    )
