"""The onnxruntime backend against the same tiny model written in numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from captioner.bundle.loading import Bundle
from captioner.bundle.writing import write_bundle
from captioner.errors import CaptionerError
from captioner.inference.backend import gumbel_noise
from captioner.inference.onnx_backend import OnnxBackend
from captioner.inference.search import Hypothesis, SearchOptions, search
from tests.tiny_bundle import SIDE, VOCABULARY, means, numpy_step, parameters, write_model


def pictures(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    colors = rng.integers(0, 256, (count, 2, 2, 3), np.uint8)
    return colors.repeat(SIDE // 2, axis=1).repeat(SIDE // 2, axis=2)


@pytest.fixture(scope="module")
def soft(tmp_path_factory):
    return OnnxBackend(write_model(tmp_path_factory.mktemp("models") / "soft"), threads=1)


@pytest.fixture(scope="module")
def hard(tmp_path_factory):
    return OnnxBackend(write_model(tmp_path_factory.mktemp("models") / "hard", hard=True), threads=1)


def test_encode_gives_the_graphs_annotations(soft):
    pixels = pictures(3)
    found = soft.encode(pixels)
    assert (found.rows, found.cols) == (2, 2)
    assert found.values == pytest.approx(means(pixels), abs=1e-6)


def test_steps_equal_the_same_model_in_numpy(soft):
    pixels = pictures(3)
    annotations = means(pixels)
    state = soft.select_hypotheses(soft.begin(soft.encode(pixels)), np.zeros((3, 2), np.int64))
    h = annotations.mean(1, keepdims=True).repeat(2, axis=1)
    for rows in ([[1, 1], [1, 1], [1, 1]], [[4, 5], [6, 7], [8, 9]], [[5, 5], [4, 11], [10, 4]]):
        words = np.array(rows, np.int64)
        step = soft.step(state, words)
        log_probabilities, alpha, h = numpy_step(parameters(), annotations, h, words)
        assert step.log_probabilities == pytest.approx(log_probabilities, abs=1e-5)
        assert step.alpha == pytest.approx(alpha, abs=1e-6)
        assert step.gate.shape == (3, 2)
        assert step.cell is None
        state = step.state


def test_select_and_keep_reorder_the_state(soft):
    pixels = pictures(3)
    state = soft.select_hypotheses(soft.begin(soft.encode(pixels)), np.zeros((3, 2), np.int64))
    words = np.array([[4, 5], [6, 7], [8, 9]], np.int64)
    after = soft.step(state, words).state
    turned = soft.select_images(soft.select_hypotheses(after, np.array([[1, 1, 0]] * 3)), np.array([2, 0]))
    log_probabilities = soft.step(turned, np.array([[4, 4, 4], [5, 5, 5]], np.int64)).log_probabilities
    plain = soft.step(after, np.array([[5, 5], [4, 4], [4, 4]], np.int64)).log_probabilities
    assert log_probabilities[0] == pytest.approx(plain[2, [1, 1, 0]], abs=1e-6)
    assert log_probabilities[1] == pytest.approx(plain[0, [1, 1, 0]], abs=1e-6)


@pytest.mark.parametrize("hard_attention", ["expected", "argmax", "sampled"])
def test_a_hard_model_attends_as_the_option_says(hard, hard_attention):
    pixels = pictures(4)
    annotations, encoded = means(pixels), hard.encode(pixels)
    words = np.full((4, 1), VOCABULARY.start, np.int64)
    noise = gumbel_noise(3, encoded.keys, 0, 1, 4) if hard_attention == "sampled" else 0
    first = annotations.mean(1, keepdims=True)
    cell = (np.log(numpy_step(parameters(), annotations, first, words)[1]) + noise).argmax(-1)
    step = hard.step(hard.begin(encoded, hard_attention, seed=3), words)
    mix = None if hard_attention == "expected" else lambda alpha: np.eye(4)[cell]
    truth, _, _ = numpy_step(parameters(), annotations, first, words, mix)
    assert step.log_probabilities == pytest.approx(truth, abs=1e-5)
    assert step.cell is None if hard_attention == "expected" else np.array_equal(step.cell, cell)


def test_a_hard_model_attends_as_its_manifest_says_by_default(hard):
    encoded = hard.encode(pictures(2))
    words = np.full((2, 1), VOCABULARY.start, np.int64)
    default, argmax = (hard.step(hard.begin(encoded, hard_attention), words) for hard_attention in (None, "argmax"))
    assert np.array_equal(default.log_probabilities, argmax.log_probabilities)


def cells(hypothesis: Hypothesis) -> NDArray[np.int64]:
    assert hypothesis.cells is not None
    return hypothesis.cells


def test_sampled_cells_depend_on_the_picture_and_the_seed_only(hard):
    pixels = pictures(6)
    options = [SearchOptions(hard_attention="sampled", seed=seed) for seed in (0, 1)]
    one, other = (search(hard, hard.encode(pixels), each) for each in options)
    alone = [search(hard, hard.encode(pixels[i : i + 1]), options[0])[0] for i in range(6)]
    assert [[h.words for h in some] for some in one] == [[h.words for h in some] for some in alone]
    for some, others in zip(one, alone, strict=True):
        np.testing.assert_array_equal(cells(some[0]), cells(others[0]))
    assert any(not np.array_equal(cells(a), cells(b)) for (a,), (b,) in zip(one, other, strict=True))


def test_gumbel_noise_samples_cells_with_the_probabilities_alpha():
    alpha = np.array([0.6, 0.25, 0.1, 0.05])
    noise = gumbel_noise(0, np.arange(200, dtype=np.uint32), 0, 100, 4)
    counts = np.bincount((np.log(alpha) + noise).argmax(-1).ravel(), minlength=4)
    assert counts / counts.sum() == pytest.approx(alpha, abs=0.01)


def test_a_batch_equals_its_images_alone(soft):
    pixels = pictures(7)
    options = SearchOptions(beam=3, n_best=2, max_length=6)
    together = search(soft, soft.encode(pixels), options)
    for i in range(7):
        (alone,) = search(soft, soft.encode(pixels[i : i + 1]), options)
        assert [h.words for h in alone] == [h.words for h in together[i]]
        for a, b in zip(alone, together[i], strict=True):
            assert a.alphas == pytest.approx(b.alphas, abs=1e-6)


def test_a_graph_that_onnxruntime_refuses_is_named(tmp_path):
    model = write_model(tmp_path / "toy")
    graph = onnx.load(model.folder / "decoder.onnx")
    graph.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(CaptionerError, match=r"decoder\.onnx: onnxruntime cannot load"):
        OnnxBackend(_with(model, tmp_path, "decoder.onnx", graph.SerializeToString()))


def test_a_graph_that_computes_other_shapes_than_it_declares_is_refused(tmp_path):
    model = write_model(tmp_path / "toy")
    graph = onnx.load(model.folder / "encoder.onnx")
    next(x for x in graph.graph.initializer if x.name == "shape").raw_data = np.array([-1, 2, 6], np.int64).tobytes()
    for dimension in graph.graph.output[0].type.tensor_type.shape.dim:
        dimension.dim_param = "any"
    backend = OnnxBackend(_with(model, tmp_path, "encoder.onnx", graph.SerializeToString()))
    with pytest.raises(CaptionerError, match=r"annotations of the shape \(1, 2, 6\) instead of \(1, 4, 3\)"):
        backend.encode(pictures(1))


def test_a_graph_that_fails_when_it_runs_costs_a_sentence(tmp_path, capfd):
    """Before, onnxruntime's exception reached the user with a traceback."""
    model = write_model(tmp_path / "toy")
    graph = onnx.load(model.folder / "encoder.onnx")
    (output,) = graph.graph.output
    for node in graph.graph.node:
        node.output[:] = ["inner" if name == output.name else name for name in node.output]
    graph.graph.initializer.append(numpy_helper.from_array(np.array([999]), "index"))
    graph.graph.node.append(onnx.helper.make_node("Gather", ["inner", "index"], [output.name]))
    backend = OnnxBackend(_with(model, tmp_path / "bad", "encoder.onnx", graph.SerializeToString()), threads=1)
    with pytest.raises(CaptionerError, match=r"the model cannot be run: onnxruntime reports .*Gather"):
        backend.encode(pictures(1))
    assert capfd.readouterr() == ("", "")


def _with(model: Bundle, folder, name: str, content: bytes) -> Bundle:
    files = {each: model.folder / each for each in ("encoder.onnx", "begin.onnx", "decoder.onnx")}
    return write_bundle(folder / "other", {**files, name: content}, model.manifest, model.vocabulary)
