"""Location addressing and coverage against their equations."""

from __future__ import annotations

from math import exp, log1p

import numpy as np
import pytest
import torch

from captioner.errors import CaptionerError
from captioner.model.attention.cell_sampling import CellChoice
from captioner.model.attention.location import ByContent, ByLocation, Coverage, sharpened
from tests.model.tiny_models import make_annotations, make_decoder, noise, with_noise_weights


def turing(content: np.ndarray, last: np.ndarray, g: float, shares: np.ndarray, gamma: float) -> np.ndarray:
    """The Neural Turing Machine's equations on a grid, cell by cell."""
    rows, cols = content.shape
    mixed = g * content + (1 - g) * last
    moved = np.zeros_like(mixed)
    for row in range(rows):
        for col in range(cols):
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    if 0 <= row - down < rows and 0 <= col - right < cols:
                        moved[row, col] += shares[down + 1, right + 1] * mixed[row - down, col - right]
    return moved**gamma / (moved**gamma).sum()


def test_location_addressing_equals_the_neural_turing_machines_equations():
    module = with_noise_weights(ByLocation(4, 1, (2, 3)))
    query, last = noise(1, 2, 4, seed=5), torch.softmax(noise(1, 2, 1, 6, seed=6), -1)
    raw = noise(1, 2, 6, seed=8)
    alpha, _, kept = module(raw, query, {"map": last})
    for k in range(2):
        control = module.control(query)[0, k].detach()
        expected = turing(
            torch.softmax(raw[0, k], -1).view(2, 3).numpy(),
            last[0, k, 0].view(2, 3).numpy(),
            1 / (1 + exp(-float(control[0]))),
            torch.softmax(control[2:], -1).view(3, 3).numpy(),
            1 + log1p(exp(float(control[1]))),
        )
        assert alpha[0, k].detach().numpy() == pytest.approx(expected.flatten())
    assert kept["map"].shape == last.shape


def test_a_shift_moves_the_map_and_weight_beyond_the_edge_is_lost():
    module = ByLocation(4, 1, (2, 3))
    corner = torch.tensor([[[[0.5, 0.0, 0.0, 0.0, 0.0, 0.5]]]])  # first and last cell
    down_right = torch.zeros(1, 1, 1, 9)
    down_right[..., 8] = 1.0
    assert module.shifted(corner, down_right).flatten().tolist() == [0, 0, 0, 0, 0.5, 0]


def test_sharpening_does_not_underflow():
    """The powers themselves would all be 0 in single precision."""
    even, gone = torch.full((1, 64), 1 / 64), torch.zeros(1, 64)
    for alpha in (even, gone):
        assert sharpened(alpha, torch.tensor(25.0)).tolist() == [pytest.approx([1 / 64] * 64)]
    assert sharpened(torch.tensor([0.2, 0.8]), torch.tensor(2.0)).tolist() == pytest.approx([0.04 / 0.68, 0.64 / 0.68])


def test_the_map_before_the_first_word_is_uniform_and_a_wrong_grid_is_refused():
    module = ByLocation(4, 2, (2, 3))
    assert module.begin(noise(3, 6, 5))["map"].unique().tolist() == [1 / 6]
    with pytest.raises(CaptionerError, match="7 annotations do not fit a grid of 2x3"):
        module.begin(noise(3, 7, 5))


def test_coverage_adds_the_sum_of_past_maps_to_the_scores():
    module = with_noise_weights(Coverage(4, 1, ByContent()))
    own = module.begin(noise(1, 3, 5))
    assert own["covered"].tolist() == [[[0.0] * 3]]
    raw, total = noise(3, 1, 1, 3, seed=1), torch.zeros(3, dtype=torch.float64)
    for t in range(3):
        query = noise(1, 1, 4, seed=10 + t)
        alpha, scores, own = module(raw[t], query, own)
        weight = query[0, 0] @ module.weight.weight[0] + module.weight.bias[0]
        torch.testing.assert_close(scores[0, 0], raw[t, 0, 0] + weight * total)
        torch.testing.assert_close(alpha[0, 0], torch.softmax(raw[t, 0, 0] + weight * total, -1))
        total = total + alpha[0, 0]


@pytest.mark.parametrize("location", ["ntm", "coverage", "both"])
@pytest.mark.parametrize("heads", [1, 2])
def test_later_maps_depend_on_earlier_maps(location, heads):
    """The same state and scores twice: without `location` the two maps would be equal."""
    decoder = make_decoder(attention={"location": location, "heads": heads}, grid=(3, 3))
    shared, own = decoder.begin(make_annotations(1))
    first, own, _ = decoder.attention(shared, own, CellChoice())
    second, *_ = decoder.attention(shared, own, CellChoice())
    assert (first - second).abs().max() > 1e-3
