"""Normalizers against the package `entmax`, closed forms and finite differences, and as ONNX graphs."""

from __future__ import annotations

from math import log, sqrt

import entmax
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from captioner.export.onnx_graphs import to_onnx
from captioner.model import loss as objective
from captioner.model.attention.cell_sampling import gumbel_noise
from captioner.model.attention.normalizers import NORMALIZERS, entmax15, sparsemax
from tests.model.tiny_models import make_annotations, make_captions, make_decoder, noise

SPARSE = ("entmax15", "sparsemax")
PACKAGE = {"entmax15": entmax.entmax15, "sparsemax": entmax.sparsemax}


def flat_and_sharp_scores() -> torch.Tensor:
    """Rows of 256 scores, from nearly uniform ones to those with one cell above all others."""
    return noise(8, 20, 256).float() * torch.logspace(-3, 2, 20).view(1, 20, 1)


@pytest.mark.parametrize("name", SPARSE)
def test_weights_and_gradients_equal_the_packages(name):
    scores, weight = flat_and_sharp_scores().double(), noise(8, 20, 256, seed=2)
    ours, theirs = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    alpha, expected = NORMALIZERS[name](ours), PACKAGE[name](theirs, dim=-1)
    torch.testing.assert_close(alpha, expected, atol=1e-12, rtol=1e-9)
    assert torch.equal(alpha > 0, expected > 0)
    (alpha * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("name", SPARSE)
def test_single_precision_has_its_full_accuracy(name):
    scores = flat_and_sharp_scores()
    exact = PACKAGE[name](scores.double(), dim=-1)
    found = NORMALIZERS[name](scores)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, atol=5e-6, rtol=1e-5)
    torch.testing.assert_close(found.sum(-1), torch.ones(8, 20), atol=2e-6, rtol=0)


@settings(max_examples=300, deadline=None)
@given(
    cells=st.integers(1, 400),
    bend=st.floats(-4, 4),
    spread=st.floats(-6, 4),
    offset=st.floats(-1e3, 1e3),
    seed=st.integers(0, 10**6),
)
def test_any_scores_give_the_packages_weights(cells, bend, spread, offset, seed):
    """Scores that crowd at the top, at the bottom, or over many orders of magnitude. Newton's steps suffice for all."""
    uniform = torch.rand(cells, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    scores = offset - 10**spread * uniform ** (10**bend)
    for name in SPARSE:
        torch.testing.assert_close(NORMALIZERS[name](scores), PACKAGE[name](scores, dim=-1), atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize("difference", [0.0, 0.3, 0.9, 1.5, 5.0])
def test_two_cells_have_their_closed_form(difference):
    """With x = d / 2 and tau between them: (x - tau)^2 + tau^2 = 1, or one cell has all the weight."""
    scores = torch.tensor([difference, 0.0], dtype=torch.float64)
    p = min(1.0, (1 + difference) / 2)
    assert sparsemax(scores).tolist() == pytest.approx([p, 1 - p])
    x = difference / 2
    tau = (x - sqrt(2 - x * x)) / 2 if x < 1 else x - 1
    assert entmax15(scores).tolist() == pytest.approx([(x - tau) ** 2, min(0, tau) ** 2])


def test_equal_scores_give_equal_weights_and_low_ones_none():
    for normalize in (entmax15, sparsemax):
        assert normalize(torch.full((3, 16), -7.0)).tolist() == [[pytest.approx(1 / 16)] * 16] * 3
        assert normalize(torch.tensor([2.0, 2.0, -3.0])).tolist() == [pytest.approx(0.5)] * 2 + [0.0]
        assert normalize(torch.tensor([1e4, -1e4])).tolist() == [1.0, 0.0]
        assert normalize(torch.tensor([3.0])).tolist() == [1.0]


def test_cells_masked_by_minus_infinity_get_nothing():
    scores = noise(5, 12, seed=4)
    for name, normalize in NORMALIZERS.items():
        masked = torch.cat([scores[:, :7], torch.full((5, 5), -1e30, dtype=torch.float64)], -1)
        torch.testing.assert_close(normalize(masked)[:, :7], normalize(scores[:, :7]), msg=name)
        assert not normalize(masked)[:, 7:].any()


@pytest.mark.parametrize("name", SPARSE)
def test_gradients_equal_finite_differences(name):
    scores = noise(4, 9, seed=3).requires_grad_()
    assert torch.autograd.gradcheck(NORMALIZERS[name], (scores,))


def test_half_precision_is_computed_in_single_precision():
    scores = noise(4, 256).bfloat16().requires_grad_()
    for name in SPARSE:
        alpha = NORMALIZERS[name](scores)
        assert alpha.dtype == torch.float32
        torch.testing.assert_close(alpha, NORMALIZERS[name](scores.detach().float()))
        (grad,) = torch.autograd.grad(alpha.square().sum(), scores)
        assert grad.dtype == torch.bfloat16


@pytest.mark.parametrize("name", SPARSE)
def test_the_exported_graph_has_only_standard_operators_and_equals_torch(name, tmp_path):
    class Module(nn.Module):
        def forward(self, scores: torch.Tensor) -> torch.Tensor:
            return NORMALIZERS[name](scores)

    path = tmp_path / "graph.onnx"
    scores = flat_and_sharp_scores()
    to_onnx(Module(), (scores[:2],), path, ["scores"], ["alpha"], {"scores": {0: "B", 1: "K"}})
    graph = onnx.load(path)
    assert {node.domain for node in graph.graph.node} == {""}
    assert not graph.functions
    (found,) = onnxruntime.InferenceSession(str(path)).run(None, {"scores": scores.numpy()})
    np.testing.assert_allclose(found, NORMALIZERS[name](scores).numpy(), atol=2e-6)
    np.testing.assert_allclose(found, PACKAGE[name](scores.double(), dim=-1).numpy(), atol=5e-6)


# --- in the decoder ------------------------------------------------------------------------------------------------


def step_alpha(decoder, annotations):
    shared, own = decoder.begin(annotations)
    return decoder.step(shared, own, torch.zeros(len(annotations), 1, dtype=torch.int64))[2].alpha


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("temperature", [0.25, 2.0])
def test_the_decoder_divides_scores_by_the_temperature_and_normalizes_them(name, temperature):
    decoder = make_decoder(attention={"normalizer": name, "temperature": temperature})
    annotations = make_annotations(2)
    shared, own = decoder.begin(annotations)
    scores = decoder.score(shared["keys"], own["h0"]) / temperature
    torch.testing.assert_close(step_alpha(decoder, annotations), PACKAGE[name](scores, dim=-1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", ["soft", "hard", "gumbel"])
def test_all_terms_of_the_loss_are_finite_where_cells_have_no_weight(mode):
    decoder = make_decoder(attention={"normalizer": "sparsemax", "mode": mode, "temperature": 0.01})
    captions = make_captions([[4, 3], [5, 2]], decoder.embedding.num_embeddings)
    sampled = None if mode == "soft" else torch.ones(2, 2, dtype=torch.bool)
    forced = decoder(make_annotations(2), *captions, sampled=sampled)
    assert (forced.alpha == 0).any()
    found = objective.loss(forced, 4, doubly_stochastic=1.0, entropy=0.1, baseline=-log(10))
    found.total.backward()
    assert torch.isfinite(found.total)
    assert all(torch.isfinite(p.grad).all() for p in decoder.parameters() if p.grad is not None)


def test_sampled_cells_have_weight():
    decoder = make_decoder(attention={"normalizer": "entmax15", "mode": "hard", "temperature": 0.02})
    shared, own = decoder.begin(make_annotations(1).expand(200, -1, -1))
    words, sampled = torch.zeros(200, 1, dtype=torch.int64), torch.ones(200, 1, dtype=torch.bool)
    rng = torch.Generator().manual_seed(1)
    cells = shared["annotations"].shape[1]
    _, _, attention = decoder.step(
        shared, own, words, noise=gumbel_noise((200, 1, cells), rng, torch.device("cpu")), sampled=sampled
    )
    assert (attention.alpha == 0).any()
    assert (attention.alpha.gather(2, attention.cell.unsqueeze(2)) > 0).all()


def test_the_last_word_changes_where_the_decoder_attends_only_with_last_word():
    for last_word in (False, True):
        decoder = make_decoder(attention={"last_word": last_word})
        shared, own = decoder.begin(make_annotations(1))
        alphas = [decoder.step(shared, own, torch.tensor([[word]]))[2].alpha for word in (1, 2)]
        assert torch.equal(*alphas) != last_word
        if last_word:
            query = own["h0"] + decoder.embedding(torch.tensor([[2]])) @ decoder.word_query.weight.T
            expected = torch.softmax(decoder.score(shared["keys"], query), -1)
            torch.testing.assert_close(alphas[1], expected)
