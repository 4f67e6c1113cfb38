"""Every score against its equation, worked out by hand."""

from __future__ import annotations

from math import exp, log1p, sqrt
from typing import Any

import pytest
import torch

from captioner.model.attention.scores import CosineScore, DotScore, GaussianScore, GeneralScore, ScaledDotScore
from tests.model.tiny_models import noise, with_noise_weights

# Two annotations and a state, small enough for arithmetic on paper.
ANNOTATIONS = torch.tensor([[[1.0, 2.0], [-1.0, 0.5]]], dtype=torch.float64)
STATE = torch.tensor([[[0.5, -1.0]]], dtype=torch.float64)
KEY = torch.tensor([[1.0, 0.0], [1.0, -1.0]], dtype=torch.float64)  # W_a: keys (1, -1) and (-1, -1.5)
QUERY = torch.tensor([[2.0, 0.0], [0.0, -1.0]], dtype=torch.float64)  # W_h: query (1, 1)


def scores(module: Any) -> list[float]:
    module.double()
    with torch.no_grad():
        if hasattr(module, "key"):
            module.key.weight.copy_(KEY)
            if module.key.bias is not None:
                module.key.bias.zero_()
        if hasattr(module, "query"):
            module.query.weight.copy_(QUERY)
        scores_of_cells: list[float] = module(module.keys(ANNOTATIONS), STATE)[0, 0].tolist()
    return scores_of_cells


def test_dot_is_the_product_of_annotation_and_state():
    assert scores(DotScore()) == [0.5 - 2.0, -0.5 - 0.5]


def test_scaled_dot_is_the_product_of_key_and_query_divided_by_the_root_of_their_width():
    assert scores(ScaledDotScore(2, 2, 2)) == pytest.approx([(1 - 1) / sqrt(2), (-1 - 1.5) / sqrt(2)])


def test_general_is_a_bilinear_form():
    assert scores(GeneralScore(2, 2)) == pytest.approx([1 * 0.5 - 1 * -1.0, -1 * 0.5 + -1.5 * -1.0])


def test_cosine_is_the_cosine_times_a_sharpness_computed_from_the_state():
    module = CosineScore(2, 2, 2).double()
    with torch.no_grad():
        module.sharpness.weight.copy_(torch.tensor([[2.0, 1.0]]))
        module.sharpness.bias.fill_(0.25)
    sharpness = log1p(exp(2 * 0.5 - 1.0 + 0.25))
    second = (-1 - 1.5) / (sqrt(1 + 1.5**2) * sqrt(2))
    assert scores(module) == pytest.approx([0.0, sharpness * second], abs=1e-12)


@pytest.mark.parametrize("learned", [False, True])
def test_gaussian_is_the_squared_distance_divided_by_the_width(learned):
    module = GaussianScore(2, 2, 2, 1.5, learned=learned)
    assert scores(module) == pytest.approx([-(0 + 4) / (2 * 1.5**2), -(4 + 6.25) / (2 * 1.5**2)])
    assert ("log_width" in dict(module.named_parameters())) == learned


def test_the_softmax_of_gaussian_scores_is_kernel_regression():
    """Nadaraya and Watson: the mean of the values, weighted by a kernel around the query."""
    module = with_noise_weights(GaussianScore(3, 4, 2, 0.7, learned=False))
    annotations, state = noise(1, 6, 3, seed=3), noise(1, 1, 4, seed=4)
    alpha = torch.softmax(module(module.keys(annotations), state), -1)[0, 0]
    q, keys = module.query(state)[0, 0].detach(), module.key(annotations)[0].detach()
    kernel = [exp(-float(((q - k) ** 2).sum()) / (2 * 0.7**2)) for k in keys]
    assert alpha.tolist() == pytest.approx([each / sum(kernel) for each in kernel])
