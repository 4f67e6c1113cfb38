"""Backbones: CNNs cut into named stages, with their pretrained weights."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError, unknown
from captioner.model import efficientnet_lite as lite
from captioner.model.settings import EncoderSettings

Stages = dict[str, nn.Module]

_IMAGENET = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])  # mean and deviation of pixels in 0..255
_LITE = ([127.0] * 3, [128.0] * 3)


def _vgg_stages(net: nn.Module) -> Stages:
    """conv1..conv5 and pool5. Each stage starts with the pooling before it, so conv5 ends before the last pooling."""
    stages: dict[str, list[nn.Module]] = {"conv1": []}
    for layer in net.features:  # type: ignore[union-attr]
        if isinstance(layer, nn.MaxPool2d):
            stages[f"conv{len(stages) + 1}" if len(stages) < 5 else "pool5"] = []
        stages[next(reversed(stages))].append(layer)
    return {name: nn.Sequential(*layers) for name, layers in stages.items()}


def _resnet_stages(net: nn.Module) -> Stages:
    stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)  # type: ignore[arg-type]
    return {"stem": stem, **{f"layer{i}": getattr(net, f"layer{i}") for i in range(1, 5)}}


def _feature_stages(net: nn.Module) -> Stages:
    return {f"features.{i}": layer for i, layer in enumerate(net.features)}  # type: ignore[arg-type]


def _regnet_stages(net: nn.Module) -> Stages:
    return {"stem": net.stem, **dict(net.trunk_output.named_children())}  # type: ignore[dict-item,union-attr]


_EFFICIENTNETS = tuple(f"efficientnet_b{i}" for i in range(5))
_MOBILENETS = ("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large")
_FAMILIES: dict[Callable[[nn.Module], Stages], tuple[str, ...]] = {
    _vgg_stages: ("vgg16", "vgg16_bn", "vgg19", "vgg19_bn"),
    _resnet_stages: ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    _feature_stages: (*_MOBILENETS, *_EFFICIENTNETS, "convnext_tiny", "convnext_small"),
    _regnet_stages: ("regnet_y_400mf", "regnet_y_800mf", "regnet_y_1_6gf", "regnet_y_3_2gf", "regnet_y_8gf"),
}
_TORCHVISION = {name: cut for cut, names in _FAMILIES.items() for name in names}
BACKBONES = (*lite.NAMES, *_TORCHVISION)
SOURCES = ("auto", "none", "torchvision", "package")


def normalization(name: str) -> tuple[list[float], list[float]]:
    """Mean and deviation per channel that a backbone was trained with, for pixels in 0..255."""
    return _LITE if name in lite.NAMES else _IMAGENET


def build_stages(settings: EncoderSettings, *, load: bool) -> Stages:
    """The stages of a backbone in their order; with random weights unless `load`."""
    name, source = settings.name, settings.weights
    if name not in BACKBONES:
        raise unknown("encoder", name, BACKBONES)
    is_lite = name in lite.NAMES
    if source == "auto":
        source = "package" if is_lite else "torchvision"
    if source in ("package", "torchvision") and is_lite != (source == "package"):
        raise CaptionerError(
            f"encoder.weights={source!r} has no weights for {name}: use {'package' if is_lite else 'torchvision'!r}, "
            "'none' or a file"
        )
    if load and source not in SOURCES and not Path(source).is_file() and "/" not in source and "." not in source:
        raise unknown("weight source", source, (*SOURCES, "a file's path"))
    if is_lite:
        stages = lite.stages(name)
        if load and source != "none":
            state = lite.package_state(name) if source == "package" else _read(Path(source))
            if any(key.startswith("_blocks.") for key in state):
                state = lite.rename(state, name)
            _load_state(nn.ModuleDict(stages), state, source)
        return stages
    from captioner.workarounds.torchvision_import import torchvision

    # init_weights=False would skip the slow initialisation of VGG, but some builders do not accept it.
    net = torchvision.models.get_model(name, weights=None)
    if load and source != "none":
        state = _download(name) if source == "torchvision" else _read(Path(source))
        _load_state(net, state, source)
    return _TORCHVISION[name](net)


def _download(name: str) -> dict[str, Tensor]:
    """torchvision's published weights, from its cache or its site."""
    from captioner.workarounds.torchvision_import import torchvision

    weights = torchvision.models.get_model_weights(name).DEFAULT
    file = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rsplit("/", 1)[1]
    try:
        state: dict[str, Tensor] = weights.get_state_dict(
            progress=True, check_hash=True, map_location="cpu", weights_only=True
        )
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        raise CaptionerError(
            f"torchvision's weights for {name} are not in its cache and could not be downloaded ({error}). "
            f"Fetch {weights.url} on a machine with a network and put it at {file}, "
            "or set encoder.weights to the path of a file."
        ) from error
    return state


def _read(path: Path) -> dict[str, Tensor]:
    """A state dict from a safetensors file, or from a pickle that contains only tensors."""
    if not path.is_file():
        raise CaptionerError(f"encoder.weights: no such file: {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CaptionerError(
            f"encoder.weights: {path} is not a state dict that contains only tensors. Any other pickle could run code, "
            "so it is not loaded: save the plain state dict, best as safetensors"
        ) from error
    except Exception as error:
        raise CaptionerError(f"encoder.weights: {path} is not a state dict ({error})") from error
    if not isinstance(state, dict):
        raise CaptionerError(f"encoder.weights: {path} contains a {type(state).__name__}, not a state dict")
    inner: dict[str, Tensor] = state.get("state_dict", state)  # some files have it one level down
    return inner


def _load_state(net: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load a state dict, or raise an error that names the tensors that do not fit. The classifier may be missing."""
    own = net.state_dict()
    optional = ("classifier.", "fc.", "avgpool.")
    missing = [
        k for k in own if k not in state and not k.startswith(optional) and not k.endswith("num_batches_tracked")
    ]
    extra = [k for k in state if k not in own and not k.startswith(optional)]
    wrong = [
        f"{k} is {tuple(state[k].shape)}, needed {tuple(own[k].shape)}"
        for k in own
        if k in state and state[k].shape != own[k].shape and not k.startswith(optional)
    ]
    if missing or extra or wrong:
        problems = [
            f"{kind}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''} ({len(names)})"
            for kind, names in (("missing", missing), ("unexpected", extra), ("of another size", wrong))
            if names
        ]
        raise CaptionerError(f"the weights from {source!r} do not fit the encoder; " + "; ".join(problems))
    fitting = {k: v for k, v in state.items() if k in own and own[k].shape == v.shape}
    net.load_state_dict(fitting, strict=False)
