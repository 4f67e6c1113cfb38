"""The torch backend: hard attention, seeds, reordering, read-only pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from captioner.inference.backend import gumbel_noise
from captioner.inference.search import SearchOptions, search
from captioner.inference.torch_backend import TorchBackend
from tests.model.tiny_models import VOCABULARY, make_network, noise_pixels

PIXELS = noise_pixels(4, 32).numpy()


def make_backend(mode: str) -> TorchBackend:
    return TorchBackend(make_network(attention={"mode": mode}).train(), VOCABULARY)


@pytest.fixture(scope="module")
def soft() -> TorchBackend:
    return make_backend("soft")


@pytest.fixture(scope="module")
def hard() -> TorchBackend:
    return make_backend("hard")


START = np.full((4, 1), VOCABULARY.start, np.int64)


def test_a_backend_has_no_dropout(soft):
    encoded = soft.encode(PIXELS)
    one, other = (soft.step(soft.begin(encoded), START).log_probabilities for _ in range(2))
    assert np.array_equal(one, other)
    assert not soft.network.training


def test_log_probabilities_are_normalized(soft):
    result = soft.step(soft.begin(soft.encode(PIXELS)), START)
    assert np.exp(result.log_probabilities).sum(-1) == pytest.approx(np.ones((4, 1)), abs=1e-5)
    assert result.alpha.sum(-1) == pytest.approx(np.ones((4, 1)), abs=1e-5)


def test_a_soft_model_ignores_the_hard_attention_option(soft):
    encoded = soft.encode(PIXELS)
    plain, asked = (soft.step(soft.begin(encoded, hard_attention), START) for hard_attention in (None, "argmax"))
    assert asked.cell is None
    assert np.array_equal(plain.log_probabilities, asked.log_probabilities)


@pytest.mark.parametrize("hard_attention", ["argmax", "sampled"])
def test_a_hard_model_takes_the_likeliest_or_a_sampled_cell(hard, hard_attention):
    encoded = hard.encode(PIXELS)
    result = hard.step(hard.begin(encoded, hard_attention, seed=3), START)
    noise = gumbel_noise(3, encoded.keys, 0, 1, 16) if hard_attention == "sampled" else 0
    assert np.array_equal(result.cell, (np.log(result.alpha) + noise).argmax(-1))
    expected = hard.step(hard.begin(encoded, "expected"), START)
    assert expected.cell is None
    assert not np.allclose(result.log_probabilities, expected.log_probabilities)


def test_samples_depend_on_the_picture_and_the_seed_only(hard):
    def found(pixels: np.ndarray, seed: int) -> list[list[int]]:
        options = SearchOptions(hard_attention="sampled", seed=seed)
        return [best[0].cells.tolist() for best in search(hard, hard.encode(pixels), options)]

    together = found(PIXELS, 0)
    assert together == [found(PIXELS[i : i + 1], 0)[0] for i in range(4)]
    assert together != found(PIXELS, 1)


def test_select_and_keep_reorder_the_state(soft):
    state = soft.select_hypotheses(soft.begin(soft.encode(PIXELS)), np.zeros((4, 2), np.int64))
    after = soft.step(state, np.array([[4, 5], [6, 7], [8, 9], [10, 11]])).state
    plain = soft.step(after, np.full((4, 2), 4)).log_probabilities
    turned = soft.select_images(soft.select_hypotheses(after, np.array([[1, 1, 0]] * 4)), np.array([2, 0]))
    result = soft.step(turned, np.full((2, 3), 4)).log_probabilities
    assert result[0] == pytest.approx(plain[2, [1, 1, 0]], abs=1e-5)
    assert result[1] == pytest.approx(plain[0, [1, 1, 0]], abs=1e-5)


def test_pixels_may_be_read_only_and_upside_down(soft):
    locked = PIXELS.copy()
    locked.flags.writeable = False
    assert torch.equal(soft.encode(locked).values, soft.encode(PIXELS).values)
    assert torch.equal(soft.encode(PIXELS[:, ::-1]).values, soft.encode(PIXELS[:, ::-1].copy()).values)
