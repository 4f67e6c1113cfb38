"""Encoder and decoder together, and weights that fit or don't."""

from __future__ import annotations

import pytest
import torch

from captioner.errors import CaptionerError
from captioner.model.loss import loss
from captioner.model.network import Network
from captioner.model.weights import load_weights
from tests.model.tiny_models import make_captions, make_network, noise_pixels

TAILED = {"size": 64, "annotations": ("stage4",), "tail": "stage4"}


def test_annotations_of_cached_grids_are_those_of_the_pixels():
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


def test_the_captions_gradient_reaches_a_tuned_tail_and_not_the_trunk():
    network = make_network(TAILED)
    network.encoder.tune()
    backward(network)
    for name, parameter in network.encoder.named_parameters():
        reached = parameter.grad is not None and bool(parameter.grad.any())
        assert reached == name.startswith("stages.stage4."), name


# --- weights on disk ------------------------------------------------------------------------------------


def copied(network: Network) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("tied", [True, False])
def test_a_network_takes_anothers_weights(tied):
    one, other = make_network(seed=1, tied=tied), make_network(seed=2, tied=tied)
    load_weights(other, copied(one), "file")
    assert all(torch.equal(value, one.state_dict()[name]) for name, value in other.state_dict().items())


def test_half_precision_is_widened():
    one, other = make_network(seed=1), make_network(seed=2)
    load_weights(other, {k: v.half() if v.dim() > 1 else v for k, v in copied(one).items()}, "file")
    found, expected = other.decoder.from_word.weight, one.decoder.from_word.weight
    assert found.dtype == torch.float32
    assert torch.equal(found, expected.half().float())


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_matrix_stored_once_serves_embedding_and_output(tied):
    state = copied(make_network(seed=1))
    del state["decoder.output.weight"]
    network = make_network(seed=2, tied=tied)
    load_weights(network, state, "file")
    assert torch.equal(network.decoder.output.weight, state["decoder.embedding.weight"])
    assert torch.equal(network.decoder.embedding.weight, state["decoder.embedding.weight"])


def test_two_matrices_do_not_fit_a_tied_model():
    """Either would overwrite the other without a word."""
    with pytest.raises(CaptionerError, match=r"decoder\.output\.weight differs from decoder\.embedding\.weight"):
        load_weights(make_network(seed=2), copied(make_network(seed=1, tied=False)), "file")


def test_what_does_not_fit_is_named_with_both_sizes():
    state = copied(make_network())
    state["decoder.gate.weight"] = torch.zeros(1, 9)
    state["surplus"] = torch.zeros(1)
    del state["encoder.stages.stem.0.weight"]
    with pytest.raises(CaptionerError) as caught:
        load_weights(make_network(), state, "runs/best.safetensors")
    message = str(caught.value)
    assert message.startswith("runs/best.safetensors does not fit the model")
    assert "encoder.stages.stem.0.weight is missing" in message
    assert "surplus is not part of this model" in message
    assert "decoder.gate.weight is (1, 9), needed (1, 7)" in message


def test_a_long_list_of_what_does_not_fit_is_cut():
    with pytest.raises(CaptionerError, match=r"is missing; .* … and \d+ more"):
        load_weights(make_network(), {}, "file")


def test_nothing_is_loaded_where_something_does_not_fit():
    network = make_network(seed=2)
    before = copied(network)
    state = copied(make_network(seed=1))
    del state["decoder.output.bias"]
    with pytest.raises(CaptionerError):
        load_weights(network, state, "file")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
