"""The encoder: a CNN cut into named stages, whose grid of outputs is the annotations a_1..a_L.

    pixels ──trunk (frozen, cacheable)──> grid ──tail (may be trained)──> annotations (B, L, D)

It never trains its batch-norm statistics: frozen or fine-tuned, the whole encoder stays in eval mode.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError, unknown
from captioner.model import efficientnet_lite as lite
from captioner.model.settings import EncoderSettings

Stages = dict[str, nn.Module]

_IMAGENET = ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])  # mean and deviation, on 0..255
_LITE = ([127.0] * 3, [128.0] * 3)


def _vgg(net: nn.Module) -> Stages:
    """conv1..conv5, each starting with the pool before it, and pool5: conv5 ends before the last pool."""
    stages: dict[str, list[nn.Module]] = {"conv1": []}
    for layer in net.features:  # type: ignore[union-attr]
        if isinstance(layer, nn.MaxPool2d):
            stages[f"conv{len(stages) + 1}" if len(stages) < 5 else "pool5"] = []
        stages[next(reversed(stages))].append(layer)
    return {name: nn.Sequential(*layers) for name, layers in stages.items()}


def _resnet(net: nn.Module) -> Stages:
    stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)  # type: ignore[arg-type]
    return {"stem": stem, **{f"layer{i}": getattr(net, f"layer{i}") for i in range(1, 5)}}


def _features(net: nn.Module) -> Stages:
    return {f"features.{i}": layer for i, layer in enumerate(net.features)}  # type: ignore[arg-type]


def _regnet(net: nn.Module) -> Stages:
    return {"stem": net.stem, **dict(net.trunk_output.named_children())}  # type: ignore[dict-item,union-attr]


_FAMILIES: dict[Callable[[nn.Module], Stages], tuple[str, ...]] = {
    _vgg: ("vgg16", "vgg16_bn", "vgg19", "vgg19_bn"),
    _resnet: ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    _features: (
        *("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large"),
        *(f"efficientnet_b{i}" for i in range(5)),
        *("convnext_tiny", "convnext_small"),
    ),
    _regnet: ("regnet_y_400mf", "regnet_y_800mf", "regnet_y_1_6gf", "regnet_y_3_2gf", "regnet_y_8gf"),
}
_CUT = {name: family for family, names in _FAMILIES.items() for name in names}
ENCODERS = (*lite.NAMES, *_CUT)
SOURCES = ("auto", "none", "torchvision", "package")


class Encoder(nn.Module):
    """A backbone's stages up to the annotations, split into trunk and tail."""

    mean: Tensor  # (1, 3, 1, 1), as the deviation: the backbone's own normalisation
    deviation: Tensor

    def __init__(self, settings: EncoderSettings, *, load: bool = True) -> None:
        """`load=False` leaves the weights random, for a caller who loads its own right after."""
        super().__init__()
        self.settings = settings
        stages = _build(settings, load)
        shapes = _probe(stages)
        self.joined = _annotation_stages(settings, shapes)
        kept = list(stages)[: list(stages).index(self.joined[-1]) + 1]
        if settings.tail is not None and settings.tail not in kept:
            raise unknown(f"first stage of the tail of {settings.name}", settings.tail, kept)
        self.order = kept
        self.cut = kept.index(settings.tail) if settings.tail else len(kept)  # stages before it are the trunk
        if settings.tail and kept.index(self.joined[0]) < self.cut - 1:
            after = kept[kept.index(self.joined[0]) + 1]
            raise CaptionerError(
                f"encoder.annotations joins {self.joined[0]!r}, which the trunk's output, {kept[self.cut - 1]!r}, "
                f"no longer holds: let encoder.tail start at {after!r} or before, not at {settings.tail!r}"
            )
        # Names of stages may hold dots, which modules' names may not.
        self.stages = nn.ModuleDict({name.replace(".", "_"): stages[name] for name in kept})
        self.size = sum(shapes[name][0] for name in self.joined)  # D
        mean, deviation = _LITE if settings.name in lite.NAMES else _IMAGENET
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(1, 3, 1, 1), persistent=False)
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> Encoder:
        """Stays in eval mode whatever the parent module is told: batch-norm statistics never drift."""
        return super().train(False)

    def tune(self, start: str | None = None, *, depthwise: bool = True) -> list[nn.Parameter]:
        """Let the tail learn, from stage `start` on; the trunk's weights stay frozen. Returns what learns.

        `depthwise=False` leaves depthwise convolutions as they are.
        """
        tail = self.order[self.cut :]
        if start is not None and start not in tail:
            raise unknown(f"stage of the tail of {self.settings.name}", start, tail)
        learning = []
        for name in tail[0 if start is None else tail.index(start) :]:
            self._stage(name).requires_grad_(True)
            for layer in self._stage(name).modules() if not depthwise else ():
                if isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1:
                    layer.requires_grad_(False)
            learning += [p for p in self._stage(name).parameters() if p.requires_grad]
        return learning

    def _stage(self, name: str) -> nn.Module:
        return self.stages[name.replace(".", "_")]

    def trunk(self, pixels: Tensor) -> Tensor:
        """Pixels (B, H, W, 3) in 0..255, any dtype, to what the cache holds: (B, C, rows, cols)."""
        x = pixels.permute(0, 3, 1, 2).to(self.mean.device, self.mean.dtype)
        x = (x - self.mean) / self.deviation
        if self.cut == len(self.order):  # no tail: the trunk's output is the joined annotations
            return self._join(x, 0)
        for name in self.order[: self.cut]:
            x = self._stage(name)(x)
        return x

    def tail(self, grid: Tensor) -> Tensor:
        """What the cache holds to the joined annotations as a grid, (B, D, rows, cols)."""
        return grid if self.cut == len(self.order) else self._join(grid, self.cut)

    def _join(self, x: Tensor, begin: int) -> Tensor:
        """Run the stages from the `begin`-th on; `x` is the output of the one before, which may be joined too."""
        outputs = [x] if begin and self.order[begin - 1] in self.joined else []
        for name in self.order[begin:]:
            x = self._stage(name)(x)
            if name in self.joined:
                outputs.append(x)
        rows, cols = (int(side) for side in outputs[-1].shape[-2:])
        return torch.cat([_average_down(y, rows, cols) for y in outputs], 1)

    def forward(self, pixels: Tensor) -> tuple[Tensor, int, int]:
        """Annotations (B, L, D) and the grid's rows and cols, for any size the backbone takes."""
        return flatten(self.tail(self.trunk(pixels)))

    def grid(self) -> tuple[int, int]:
        """Rows and cols at the configured size."""
        with torch.no_grad():
            x = self.tail(self._black())
        return int(x.shape[2]), int(x.shape[3])

    def cached_shape(self) -> tuple[int, int, int]:
        """Channels, rows and cols of the trunk's output at the configured size."""
        x = self._black()
        return int(x.shape[1]), int(x.shape[2]), int(x.shape[3])

    def _black(self) -> Tensor:
        """The trunk's output for a black picture of the configured size."""
        side = self.settings.size
        with torch.no_grad():
            return self.trunk(torch.zeros(1, side, side, 3))

    def fingerprint(self) -> str:
        """Of everything that decides the trunk's output: stages, weights, normalisation."""
        trunk = self.order[: self.cut]
        joined = self.joined if self.cut == len(self.order) else ()
        digest = hashlib.sha256(repr((self.settings.name, trunk, joined)).encode())
        for name in trunk:
            for key, tensor in self._stage(name).state_dict().items():
                digest.update(f"{name}.{key}".encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        digest.update(self.mean.cpu().numpy().tobytes() + self.deviation.cpu().numpy().tobytes())
        return digest.hexdigest()[:32]


def _average_down(grid: Tensor, rows: int, cols: int) -> Tensor:
    """A finer grid brought to rows x cols. As matrix products, since adaptive pooling exports only where it divides."""
    height, width = (int(side) for side in grid.shape[-2:])
    if (height, width) == (rows, cols):
        return grid
    return _means(height, rows, grid) @ grid @ _means(width, cols, grid).T


def _means(cells: int, coarser: int, like: Tensor) -> Tensor:
    """(coarser, cells): each row averages the cells that a coarser cell touches, as adaptive pooling does."""
    at, low = torch.arange(cells), torch.arange(coarser).unsqueeze(1) * cells
    touched = (at >= low // coarser) & (at < -(-(low + cells) // coarser))
    return (touched / touched.sum(1, keepdim=True)).to(like.device, like.dtype)


def flatten(grid: Tensor) -> tuple[Tensor, int, int]:
    """A grid (B, D, rows, cols) as annotations (B, L, D) with rows and cols."""
    rows, cols = grid.shape[-2:]
    return grid.flatten(2).transpose(1, 2), rows, cols


def _annotation_stages(settings: EncoderSettings, shapes: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    """The stages that are joined, in the network's order; `shapes` are channels and stride of every stage."""
    for name in settings.annotations:
        if name not in shapes:
            raise unknown(f"stage of {settings.name}", name, shapes)
    if settings.annotations:
        return tuple(name for name in shapes if name in settings.annotations)
    fitting = [name for name, (_, stride) in shapes.items() if stride == settings.stride]
    if not fitting:
        strides = sorted({stride for _, stride in shapes.values()})
        raise CaptionerError(f"{settings.name} has no stage of stride {settings.stride}; it has strides {strides}")
    if settings.name.startswith("vgg"):
        return ("conv5",) if settings.stride == 16 else ("pool5",)
    return (fitting[-1],)


def _probe(stages: Stages) -> dict[str, tuple[int, int]]:
    """Channels and stride of each stage, by running a small picture through."""
    side = 128
    x = torch.zeros(1, 3, side, side)
    shapes = {}
    with torch.no_grad():
        for name, stage in stages.items():
            x = stage.eval()(x)
            shapes[name] = (int(x.shape[1]), side // int(x.shape[2]))
    return shapes


def _build(settings: EncoderSettings, load: bool) -> Stages:
    name, source = settings.name, settings.weights
    if name not in ENCODERS:
        raise unknown("encoder", name, ENCODERS)
    is_lite = name in lite.NAMES
    if source == "auto":
        source = "package" if is_lite else "torchvision"
    if source in ("package", "torchvision") and is_lite != (source == "package"):
        raise CaptionerError(
            f"encoder.weights={source!r} does not hold {name}: use {'package' if is_lite else 'torchvision'!r}, "
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
            _fit(nn.ModuleDict(stages), state, source)
        return stages
    from captioner.workarounds.torchvision_import import torchvision

    # init_weights=False would skip VGG's slow initialisation, but not every builder takes it.
    net = torchvision.models.get_model(name, weights=None)
    if load and source != "none":
        state = _download(name) if source == "torchvision" else _read(Path(source))
        _fit(net, state, source)
    return _CUT[name](net)


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
            f"torchvision's weights for {name} are not here and could not be downloaded ({error}). "
            f"Fetch {weights.url} on a machine with a network and put it at {file}, "
            "or set encoder.weights to a file's path."
        ) from error
    return state


def _read(path: Path) -> dict[str, Tensor]:
    """A state dict from a safetensors file or a pickle of tensors only."""
    if not path.is_file():
        raise CaptionerError(f"encoder.weights: no such file: {path}")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CaptionerError(
            f"encoder.weights: {path} is not a state dict of tensors alone, and a pickle of anything else could run "
            "code, so it is not loaded: save the plain state dict, best as safetensors"
        ) from error
    except Exception as error:
        raise CaptionerError(f"encoder.weights: {path} is not a state dict ({error})") from error
    if not isinstance(state, dict):
        raise CaptionerError(f"encoder.weights: {path} holds a {type(state).__name__}, not a state dict")
    inner: dict[str, Tensor] = state.get("state_dict", state)  # some publish it one level down
    return inner


def _fit(net: nn.Module, state: dict[str, Tensor], source: str) -> None:
    """Load a state dict, or say which tensors don't fit. A missing or extra classifier is no matter."""
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
        parts = [
            f"{what}: {', '.join(names[:5])}{' …' if len(names) > 5 else ''} ({len(names)})"
            for what, names in (("missing", missing), ("unexpected", extra), ("of another size", wrong))
            if names
        ]
        raise CaptionerError(f"the weights from {source!r} do not fit the encoder; " + "; ".join(parts))
    fitting = {k: v for k, v in state.items() if k in own and own[k].shape == v.shape}
    net.load_state_dict(fitting, strict=False)
