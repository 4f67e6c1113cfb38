"""The visual sentinel against its equation."""

from __future__ import annotations

import pytest
import torch

from captioner.model.attention.cell_sampling import CellChoice
from captioner.model.attention.scores import AdditiveScore
from captioner.model.attention.sentinel import Sentinel
from tests.model.tiny_models import make_annotations, make_decoder, noise, with_noise_weights


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_sentinel_is_one_more_cell_of_the_softmax(temperature):
    sentinel = with_noise_weights(Sentinel(4, 3, temperature))
    score = with_noise_weights(AdditiveScore(3, 4, 5), seed=30)
    a, query, memory = noise(2, 6, 3), noise(2, 3, 4, seed=1), noise(2, 3, 4, seed=2)
    raw = score(score.keys(a), query) / temperature
    z, gate = noise(2, 3, 3, seed=9), torch.full((2, 3), 0.8, dtype=torch.float64)
    mixed, gates = sentinel(z, gate, query, memory, raw, score)
    for b in range(2):
        for k in range(3):
            s = sentinel.project(torch.sigmoid(sentinel.gate(query[b, k])) * torch.tanh(memory[b, k]))
            own = score(score.keys(s.view(1, 1, 3)), query[b, k].view(1, 1, 4)).flatten() / temperature
            weights = torch.softmax(torch.cat([raw[b, k], own]), 0)
            torch.testing.assert_close(mixed[b, k], weights[:-1].sum() * z[b, k] + weights[-1] * s)
            torch.testing.assert_close(gates[b, k], 0.8 * (1 - weights[-1]))


def test_cells_that_are_covered_lose_to_the_sentinel():
    decoder = make_decoder(attention={"location": "coverage", "sentinel": True, "gate": False}, grid=(3, 3))
    with torch.no_grad():
        decoder.location.weight.weight.zero_()
        decoder.location.weight.bias.fill_(-50.0)
    shared, own = decoder.begin(make_annotations(1))
    gates = []
    for covered in (0.0, 5.0):
        now = {**own, "covered": torch.full_like(own["covered"], covered)}
        gates.append(float(decoder.attention(shared, now, CellChoice())[2].gate.detach()))
    assert gates[0] > 0.5
    assert gates[1] < 1e-6
