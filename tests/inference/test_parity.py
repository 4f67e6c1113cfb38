"""The two backends give the same captions and the same maps: onnxruntime on an exported bundle, and torch."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from captioner import Captioner
from captioner.bundle.layout import BEGIN, DECODER, int8_graph
from captioner.bundle.loading import Bundle, load_bundle
from captioner.bundle.manifest import EncoderRecord, Manifest
from captioner.bundle.writing import write_bundle
from captioner.errors import UsageError
from captioner.inference import model_loading
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, force, search
from captioner.text.vocabulary import SPECIAL, Vocabulary

torch = pytest.importorskip("torch", reason="the torch backend is of the train half")

from captioner.bundle.layout import WEIGHTS  # noqa: E402
from captioner.export.int8 import _folded, quantize_graphs  # noqa: E402
from captioner.export.onnx_graphs import export_graphs  # noqa: E402
from captioner.export.run_bundle import int8_loss  # noqa: E402
from captioner.inference.torch_backend import load_backend  # noqa: E402
from captioner.model.network import Network  # noqa: E402
from captioner.model.settings import EncoderSettings, ModelSettings  # noqa: E402

SIDE = 96
VOCABULARY = Vocabulary(SPECIAL + tuple(f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)))


def random_bundle(folder: Path, mode: str, layers: int = 1, int8: bool = False) -> Bundle:
    """An untrained decoder, with outputs sharp enough that captions differ between pictures and end."""
    torch.manual_seed(3)
    encoder = EncoderSettings(size=SIDE)
    model = ModelSettings(
        attention={"mode": mode, "size": 32},
        annotation_size=48,
        embedding_size=40,
        hidden_size=56,
        layers=layers,
    )
    network = Network(encoder, model, len(VOCABULARY))
    with torch.no_grad():
        for name, weight in network.decoder.named_parameters():
            weight.mul_(6 if name.startswith("score") else 2.5)
        network.decoder.output.bias[VOCABULARY.end] = 4
    folder.mkdir()
    export_graphs(network, folder)
    rows, cols = network.encoder.grid()
    manifest = Manifest(
        name="random",
        attention=mode,  # type: ignore[arg-type]
        encoder=EncoderRecord(encoder.name, SIDE, rows, cols, network.encoder.size, (127.0,) * 3, (128.0,) * 3),
        training_data="nothing",
        licence="none",
        settings={"encoder": {"size": SIDE, "weights": "none"}, "model": model.model_dump(mode="json")},
    )
    files = {path.name: path for path in (*folder.glob("*.onnx"), folder / WEIGHTS)}
    bundle = write_bundle(folder.parent / "random", files, manifest, VOCABULARY)
    if int8:
        quantize_graphs(bundle, folder, pictures(8), network.encoder.order[:2])
        files = {path.name: path for path in (*folder.glob("*.onnx"), folder / WEIGHTS)}
        bundle = write_bundle(bundle.folder, files, replace(manifest, static_int8=True), VOCABULARY)
    return bundle


@pytest.fixture(scope="module", params=["soft", "hard", "deep"])
def backends(request, tmp_path_factory):
    mode, layers = ("soft", 2) if request.param == "deep" else (request.param, 1)
    made = random_bundle(tmp_path_factory.mktemp("bundle") / "files", mode, layers)
    loaded = load_bundle(made.folder)
    return OnnxBackend(loaded), load_backend(loaded, "cpu")


def pictures(count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    coarse = rng.integers(0, 256, (count, 6, 6, 3), np.uint8)
    return coarse.repeat(SIDE // 6, axis=1).repeat(SIDE // 6, axis=2)


def same(ours, theirs) -> None:
    for some, others in zip(ours, theirs, strict=True):
        assert [h.words for h in some] == [h.words for h in others]
        for a, b in zip(some, others, strict=True):
            assert a.ended == b.ended
            assert a.score == pytest.approx(b.score, abs=1e-4)
            assert a.log_probabilities == pytest.approx(b.log_probabilities, abs=1e-3)
            assert a.alphas == pytest.approx(b.alphas, abs=1e-4)
            assert a.gates == pytest.approx(b.gates, abs=1e-4)
            assert (a.cells is None) == (b.cells is None)
            assert a.cells is None or np.array_equal(a.cells, b.cells)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=1),
        SearchOptions(beam=3, n_best=3, max_length=12),
        SearchOptions(beam=4, groups=2, n_best=4, no_repeat=2),
        SearchOptions(beam=2, required=(("wordbc",), ("wordaa", "wordab")), max_length=8),
        SearchOptions(sample=True, n_best=2, seed=4, top_p=0.9),
        SearchOptions(beam=3, hard_attention="argmax"),
        SearchOptions(beam=3, hard_attention="sampled", seed=9),
    ],
    ids=["greedy", "beam", "groups", "required", "sample", "argmax", "sampled"],
)
def test_both_backends_find_the_same_captions_and_maps(backends, options):
    light, full = backends
    pixels = pictures(5)
    ours, theirs = (search(each, each.encode(pixels), options) for each in (light, full))
    same(ours, theirs)
    assert np.abs(ours[0][0].alphas[0] - ours[1][0].alphas[0]).max() > 1e-3  # the maps depend on the picture


def test_both_backends_score_given_captions_equally(backends):
    light, full = backends
    pixels = pictures(2)
    captions = [[[5, 6, 7], [8]], [[9, 10, 11, 12], []]]
    same(*(force(each, each.encode(pixels), captions) for each in (light, full)))


@pytest.fixture(scope="module", params=["soft", "hard"])
def with_int8(request, tmp_path_factory):
    return random_bundle(tmp_path_factory.mktemp("bundle") / "files", request.param, int8=True)


def test_8_bit_graphs_change_little(with_int8):
    exact, rough = OnnxBackend(with_int8), OnnxBackend(with_int8, int8=True)
    captions = [[[5, 6, 7, 8, 9]] for _ in range(5)]
    pixels = pictures(5)
    ours, theirs = (force(each, each.encode(pixels), captions) for each in (exact, rough))
    for (a,), (b,) in zip(ours, theirs, strict=True):
        assert 0 < np.abs(a.log_probabilities - b.log_probabilities).max() < 0.5
        assert np.abs(a.alphas - b.alphas).max() < 0.1
    assert 0 < int8_loss(with_int8, pixels) < 0.5


def with_dynamic_graphs(exact: Bundle, folder: Path) -> Bundle:
    """A bundle of format 1: its 8-bit graphs measure the ranges of their inputs for each batch."""
    from onnxruntime.quantization import quantize_dynamic

    shutil.copytree(exact.folder, folder)
    for graph in (BEGIN, DECODER):
        quantize_dynamic(_folded(folder / graph), folder / int8_graph(graph), op_types_to_quantize=["MatMul"])
    files = {path.name: path for path in (*folder.glob("*.onnx"), folder / WEIGHTS)}
    manifest = replace(exact.manifest, static_int8=False, format=1)
    return write_bundle(folder.with_name("dynamic"), files, manifest, VOCABULARY)


@pytest.mark.parametrize("graphs", ["static", "dynamic"])
def test_8_bit_captions_are_the_same_to_the_last_bit_in_any_batch(with_int8, graphs, tmp_path):
    bundle = with_int8 if graphs == "static" else with_dynamic_graphs(with_int8, tmp_path / "files")
    backend = OnnxBackend(bundle, threads=1, int8=True)
    assert backend.one_by_one == (graphs == "dynamic")
    pixels = pictures(7)
    options = SearchOptions(beam=3, n_best=2, max_length=12)
    together = search(backend, backend.encode(pixels), options)
    given = [[[5, 6, 7]], [[8]], *[[[9, 10]]] * 5]
    forced = force(backend, backend.encode(pixels), given)
    for order in ([0], [3, 5], [6, 2, 1, 4]):
        found = search(backend, backend.encode(pixels[order]), options)
        found += force(backend, backend.encode(pixels[order]), [given[i] for i in order])
        expected = [together[i] for i in order] + [forced[i] for i in order]
        for ours, theirs in zip(found, expected, strict=True):
            assert [h.words for h in ours] == [h.words for h in theirs]
            assert [h.score for h in ours] == [h.score for h in theirs]
            for a, b in zip(ours, theirs, strict=True):
                assert np.array_equal(a.log_probabilities, b.log_probabilities) and np.array_equal(a.alphas, b.alphas)


@pytest.mark.parametrize(("has_products", "name"), [(True, "int8"), (False, "onnx")])
def test_the_quick_backend_needs_the_processor_and_graphs_with_fixed_scales(
    with_int8, has_products, name, tmp_path, monkeypatch
):
    monkeypatch.setattr(model_loading, "has_8_bit_products", lambda: has_products)
    quick = Captioner.load(with_int8.folder, backend="quick")
    assert quick.backend.name == quick(pictures(1)[0]).backend == name
    older = with_dynamic_graphs(with_int8, tmp_path / "files")
    assert Captioner.load(older.folder, backend="quick").backend.name == "onnx"
    assert Captioner.load(with_int8.folder).backend.name == "onnx"


def test_the_int8_backend_is_selected_by_name(with_int8):
    quick = Captioner.load(with_int8.folder, backend="int8")
    assert quick(pictures(1)[0]).text
    with pytest.raises(UsageError, match="--backend torch for the device"):
        Captioner.load(with_int8.folder, backend="int8", device="cuda")


def test_the_error_for_missing_int8_graphs_says_how_to_add_them(tmp_path):
    made = random_bundle(tmp_path / "files", "soft")
    with pytest.raises(UsageError, match="'random' has no 8-bit graphs; `captioner export --int8` adds them"):
        Captioner.load(made.folder, backend="int8")
