"""Weights on disk: those that fit a network, those that do not, and those saved under old names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from captioner.captioning import Captioner
from captioner.errors import CaptionerError
from captioner.model.network import Network
from captioner.model.weights import load_weights, read_tensors
from tests.model.tiny_models import make_network

ROOT = Path(__file__).parents[2]


def copied(network: Network) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


@pytest.mark.parametrize("tied", [True, False])
def test_a_network_loads_the_weights_of_another(tied):
    one, other = make_network(seed=1, tied=tied), make_network(seed=2, tied=tied)
    load_weights(other, copied(one), "file")
    assert all(torch.equal(value, one.state_dict()[name]) for name, value in other.state_dict().items())


def test_half_precision_is_converted_to_float32():
    one, other = make_network(seed=1), make_network(seed=2)
    load_weights(other, {k: v.half() if v.dim() > 1 else v for k, v in copied(one).items()}, "file")
    found, expected = (network.get_parameter("decoder.from_word.weight") for network in (other, one))
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


def test_a_tied_model_refuses_two_different_matrices():
    """One would silently overwrite the other."""
    with pytest.raises(CaptionerError, match=r"decoder\.output\.weight differs from decoder\.embedding\.weight"):
        load_weights(make_network(seed=2), copied(make_network(seed=1, tied=False)), "file")


def test_tensors_that_do_not_fit_are_named_with_both_sizes():
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


def test_a_long_list_of_problems_is_shortened():
    with pytest.raises(CaptionerError, match=r"is missing; .* … and \d+ more"):
        load_weights(make_network(), {}, "file")


def test_nothing_is_loaded_if_one_tensor_does_not_fit():
    network = make_network(seed=2)
    before = copied(network)
    state = copied(make_network(seed=1))
    del state["decoder.output.bias"]
    with pytest.raises(CaptionerError):
        load_weights(network, state, "file")
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


# --- files ----------------------------------------------------------------------------------------------


def test_tensors_saved_under_old_names_are_read_under_current_ones(tmp_path: Path) -> None:
    network = make_network(grid_encoder="lstm", seed=1)
    old = {name.replace("decoder.grid_encoder.", "decoder.context."): t for name, t in copied(network).items()}
    assert old.keys() != network.state_dict().keys()
    save_file(old, tmp_path / "old.safetensors", {"state": "{}"})
    tensors, metadata = read_tensors(tmp_path / "old.safetensors")
    assert metadata == {"state": "{}"}
    other = make_network(grid_encoder="lstm", seed=2)
    load_weights(other, tensors, "file")
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in other.state_dict().items())


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(CaptionerError, match=f"no such file: {path}"):
        read_tensors(path)
    path.write_bytes(b"not safetensors")
    with pytest.raises(CaptionerError, match=f"{path} is damaged"):
        read_tensors(path)


# The manifests of these bundles have settings under their old names.
BUNDLES = sorted(path.parent.name for path in ROOT.glob("weights/*/manifest.json"))


@pytest.mark.parametrize("name", BUNDLES)
def test_every_shipped_bundle_loads_in_torch_and_captions_a_photograph(name: str) -> None:
    captioner = Captioner.load(str(ROOT / "weights" / name), backend="torch", device="cpu")
    words = captioner(ROOT / "examples" / "dog.jpg").text.split()
    assert {"dog", "dogs", "woman", "girl", "man"} & set(words), words
