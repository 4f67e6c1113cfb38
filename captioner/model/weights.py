"""The weights of a network on disk: reading a file of tensors, fitting them into a network, and loading a bundle."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from captioner.bundle.layout import WEIGHTS
from captioner.bundle.loading import Bundle
from captioner.bundle.manifest import other_bundle
from captioner.errors import CaptionerError
from captioner.model.network import Network
from captioner.model.renames import current_settings, current_tensors
from captioner.model.settings import EncoderSettings, ModelSettings

CHECKSUM = "sha256"  # the entry in the header of checkpoints and best weights
ENCODER_PREFIX = "encoder."  # of the names of an encoder's tensors in a network


def load_network(bundle: Bundle) -> Network:
    """The network of a bundle, in torch."""
    settings = current_settings(bundle.manifest.settings)
    encoder = EncoderSettings.model_validate(settings["encoder"])
    network = Network(encoder, ModelSettings.model_validate(settings["model"]), len(bundle.vocabulary), load=False)
    load_weights(network, bundle_tensors(bundle), str(bundle.path(WEIGHTS)))
    return network


def bundle_tensors(bundle: Bundle) -> dict[str, Tensor]:
    """All weights of a bundle, with those of a shared encoder."""
    tensors = read_tensors(bundle.path(WEIGHTS))[0]
    if (other := other_bundle(bundle.manifest.encoder.file)) is not None:
        shared = read_tensors(bundle.path(f"../{other}/{WEIGHTS}"))[0]
        tensors |= {name: tensor for name, tensor in shared.items() if name.startswith(ENCODER_PREFIX)}
    return tensors


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file under their current names, and the metadata of its header."""
    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
    except FileNotFoundError:
        raise CaptionerError(f"no such file: {path}") from None
    except (SafetensorError, ValueError, OSError, OverflowError) as error:
        raise CaptionerError(f"{path} is damaged ({error})") from error
    if CHECKSUM in metadata and metadata[CHECKSUM] != tensor_checksum(tensors, metadata.get("state", "")):
        raise CaptionerError(f"{path} is damaged: its checksum is not that of its tensors")
    return current_tensors(tensors), metadata


def tensor_checksum(tensors: dict[str, Tensor], state: str) -> str:
    """SHA-256 of the names, types, shapes and values of tensors, and of the text that is stored with them."""
    digest = hashlib.sha256(state.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()


def load_weights(network: nn.Module, tensors: dict[str, Tensor], source: str) -> None:
    """Give a network all tensors of a saved one, or raise an error that names those that do not fit."""
    own = network.state_dict()
    embedding, output = "decoder.embedding.weight", "decoder.output.weight"
    problems = []
    if output not in tensors and embedding in tensors:  # tied weights are stored once
        tensors = {**tensors, output: tensors[embedding]}
    tied = own[embedding].data_ptr() == own[output].data_ptr()
    if tied and embedding in tensors and not torch.equal(tensors[embedding], tensors[output]):
        problems.append(f"{output} differs from {embedding}, which must be equal in a model with model.tied=true")
    problems += [f"{name} is missing" for name in own if name not in tensors]
    problems += [f"{name} is not part of this model" for name in tensors if name not in own]
    problems += [
        f"{name} is {tuple(tensors[name].shape)}, needed {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if problems:
        more = f" … and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise CaptionerError(f"{source} does not fit the model: {'; '.join(problems[:5])}{more}")
    network.load_state_dict({k: v.to(torch.float32) if v.is_floating_point() else v for k, v in tensors.items()})
