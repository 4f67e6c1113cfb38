"""Encoder and decoder together: annotations, and which weights get gradients."""

from __future__ import annotations

import torch

from captioner.model.loss import loss
from captioner.model.network import Network
from tests.model.tiny_models import make_captions, make_network, noise_pixels

TAILED = {"size": 64, "annotations": ("stage4",), "tail": "stage4"}


def test_annotations_of_cached_grids_equal_those_of_the_pixels():
    network = make_network(TAILED).eval()
    pixels = noise_pixels(2, 64)
    with torch.no_grad():
        whole, cached = network.encode(pixels), network.annotations(network.encoder.trunk(pixels))
    assert whole.shape == (2, 16, 80)
    assert torch.equal(whole, cached)


def backward(network: Network) -> None:
    network.train()
    forced = network.decoder(network.encode(noise_pixels(2, 64)), *make_captions([[4, 3], [2, 5]]))
    loss(forced, 4, doubly_stochastic=1.0).total.backward()


def test_no_gradient_reaches_a_frozen_encoder():
    network = make_network(TAILED)
    before = {name: value.clone() for name, value in network.encoder.state_dict().items()}
    backward(network)
    assert all(parameter.grad is None for parameter in network.encoder.parameters())
    assert all(parameter.grad is not None for parameter in network.decoder.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.encoder.state_dict().items())


def test_gradients_reach_a_tuned_tail_and_not_the_trunk():
    network = make_network(TAILED)
    network.encoder.tune()
    backward(network)
    for name, parameter in network.encoder.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.any())
        assert reached == name.startswith("stages.stage4."), name
