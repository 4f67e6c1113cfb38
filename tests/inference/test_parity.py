"""The two backends give the same captions and the same maps: onnxruntime on an exported bundle, and torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from captioner import Captioner
from captioner.bundle.layout import BEGIN, DECODER, int8_graph
from captioner.bundle.loading import Bundle, load_bundle
from captioner.bundle.manifest import EncoderRecord, Manifest
from captioner.bundle.writing import write_bundle
from captioner.errors import UsageError
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import SearchOptions, force, search
from captioner.text.vocabulary import SPECIAL, Vocabulary

torch = pytest.importorskip("torch", reason="the torch backend is of the train half")

from captioner.bundle.layout import WEIGHTS  # noqa: E402
from captioner.export.int8 import quantize_convolutions, quantize_products  # noqa: E402
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
    if int8:
        quantize_convolutions(folder / "encoder.onnx", folder / "encoder.int8.onnx", pictures(8))
        for graph in (BEGIN, DECODER):
            quantize_products(folder / graph, folder / int8_graph(graph))
    files = {path.name: path for path in (*folder.glob("*.onnx"), folder / WEIGHTS)}
    return write_bundle(folder.parent / "random", files, manifest, VOCABULARY)


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


def test_8_bit_graphs_have_8_bit_matrices_and_change_little(with_int8):
    import onnx

    exact, rough = OnnxBackend(with_int8), OnnxBackend(with_int8, int8=True)
    for graph, least in (("begin.int8.onnx", 3), ("decoder.int8.onnx", 5)):
        operations = [node.op_type for node in onnx.load(with_int8.folder / graph).graph.node]
        assert sum("MatMulInteger" in each for each in operations) >= least
    operations = [node.op_type for node in onnx.load(with_int8.folder / "encoder.int8.onnx").graph.node]
    assert "Conv" in operations and "Sub" not in operations  # the first convolution reads the pixels
    captions = [[[5, 6, 7, 8, 9]] for _ in range(5)]
    pixels = pictures(5)
    ours, theirs = (force(each, each.encode(pixels), captions) for each in (exact, rough))
    for (a,), (b,) in zip(ours, theirs, strict=True):
        assert 0 < np.abs(a.log_probabilities - b.log_probabilities).max() < 0.5
        assert np.abs(a.alphas - b.alphas).max() < 0.1
    assert 0 < int8_loss(with_int8) < 0.5


def test_the_int8_backend_is_selected_by_name(with_int8):
    quick = Captioner.load(with_int8.folder, backend="int8")
    assert quick(pictures(1)[0]).text
    with pytest.raises(UsageError, match="--backend torch for the device"):
        Captioner.load(with_int8.folder, backend="int8", device="cuda")


def test_the_error_for_missing_int8_graphs_says_how_to_add_them(tmp_path):
    made = random_bundle(tmp_path / "files", "soft")
    with pytest.raises(UsageError, match="'random' has no 8-bit graphs; `captioner export --int8` adds them"):
        Captioner.load(made.folder, backend="int8")
