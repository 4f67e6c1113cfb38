"""The encoder: a backbone whose last feature map, as a grid of vectors, gives the annotations a_1..a_L.

    pixels ──trunk (frozen, cacheable)──> grid ──tail (may be trained)──> annotations (B, L, D)
                                           └────────pyramid────────────────┘ optional: a finer grid

Batch-norm statistics are never trained: frozen or fine-tuned, the stages stay in eval mode.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise

import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError, UsageError, unknown
from captioner.model.backbones import Stages, build_stages, normalization
from captioner.model.pyramid import Pyramid
from captioner.model.settings import EncoderSettings


class Encoder(nn.Module):
    """The stages of a backbone up to the annotations, split into trunk and tail."""

    mean: Tensor  # (1, 3, 1, 1), as the deviation: the normalisation of the backbone
    deviation: Tensor

    def __init__(self, settings: EncoderSettings, *, load: bool = True) -> None:
        """With `load=False` the weights stay random, for a caller that loads its own right after."""
        super().__init__()
        self.settings = settings
        stages = build_stages(settings, load=load)
        shapes = _stage_shapes(stages)
        self.joined = _annotation_stages(settings, shapes)
        used = list(stages)[: list(stages).index(self.joined[-1]) + 1]
        if settings.tail is not None and settings.tail not in used:
            raise unknown(f"first stage of the tail of {settings.name}", settings.tail, used)
        self.order = used
        self.cut = used.index(settings.tail) if settings.tail else len(used)  # the stages before it are the trunk
        if settings.tail and used.index(self.joined[0]) < self.cut - 1:
            after = used[used.index(self.joined[0]) + 1]
            raise CaptionerError(
                f"encoder.annotations joins {self.joined[0]!r}, which the output of the trunk, {used[self.cut - 1]!r}, "
                f"does not contain: let encoder.tail start at {after!r} or before, not at {settings.tail!r}"
            )
        # Names of stages may contain dots; names of modules may not.
        self.stages = nn.ModuleDict({name.replace(".", "_"): stages[name] for name in used})
        self.size = sum(shapes[name][0] for name in self.joined)  # D
        self.pyramid: Pyramid | None = None
        if settings.pyramid is not None:
            self.pyramid = self._make_pyramid(shapes)
            self.size = settings.pyramid.size
        mean, deviation = normalization(settings.name)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(1, 3, 1, 1), persistent=False)
        self.requires_grad_(False)
        if self.pyramid is not None:  # has no weights to start from
            self.pyramid.requires_grad_(True)
        self.eval()

    def _make_pyramid(self, shapes: dict[str, tuple[int, int]]) -> Pyramid:
        """The pyramid from the trunk's output and the annotations. `shapes` has channels and stride of every stage."""
        s, order, coarse = self.settings, self.order, shapes[self.joined[-1]][1]
        assert s.pyramid is not None
        finer = [tail for fine, tail in pairwise(order) if shapes[fine][1] < coarse]
        finer = finer[: order.index(self.joined[0]) + 1]  # the annotations are joined in the tail
        if s.tail not in finer:
            raise UsageError(
                "encoder.pyramid adds the annotations to the output of the trunk, which has to be a finer grid; set "
                f"encoder.tail to one of {', '.join(finer)}, not to {s.tail or 'null'}"
            )
        fine = order[self.cut - 1]
        factor = coarse // shapes[fine][1]
        return Pyramid(s.pyramid, shapes[fine][0], self.size, factor)

    def train(self, mode: bool = True) -> Encoder:
        """The stages stay in eval mode, so that batch-norm statistics never change. Only the pyramid has dropout."""
        super().train(False)
        if self.pyramid is not None:
            self.pyramid.train(mode)
        return self

    def tune(self, start: str | None = None, *, depthwise: bool = True) -> list[nn.Parameter]:
        """Make the tail trainable, from stage `start` on, and return its parameters. The trunk stays frozen.

        With `depthwise=False` depthwise convolutions stay frozen too.
        """
        tail = self.order[self.cut :]
        if start is not None and start not in tail:
            raise unknown(f"stage of the tail of {self.settings.name}", start, tail)
        trainable = []
        for name in tail[0 if start is None else tail.index(start) :]:
            self._stage(name).requires_grad_(True)
            for layer in self._stage(name).modules() if not depthwise else ():
                if isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels > 1:
                    layer.requires_grad_(False)
            trainable += [p for p in self._stage(name).parameters() if p.requires_grad]
        return trainable

    @property
    def has_trunk(self) -> bool:
        """Whether any stage is frozen and its output cached. Without a trunk, training reads pixels."""
        return self.cut > 0

    def _stage(self, name: str) -> nn.Module:
        return self.stages[name.replace(".", "_")]

    def trunk(self, pixels: Tensor) -> Tensor:
        """From pixels (B, H, W, 3) in 0..255, of any dtype, to the grid that is cached: (B, C, rows, cols)."""
        x = pixels.permute(0, 3, 1, 2).to(self.mean.device, self.mean.dtype)
        x = (x - self.mean) / self.deviation
        if self.cut == len(self.order):  # without a tail, the trunk gives the joined annotations
            return self._run_and_join(x, 0)
        for name in self.order[: self.cut]:
            x = self._stage(name)(x)
        return x

    def tail(self, grid: Tensor) -> Tensor:
        """From the cached grid to the annotations as a grid, (B, D, rows, cols)."""
        if self.cut == len(self.order):
            return grid
        annotations = self._run_and_join(grid, self.cut)
        return annotations if self.pyramid is None else self.pyramid(grid, annotations)

    def _run_and_join(self, x: Tensor, first: int) -> Tensor:
        """Run the stages from number `first` on. `x` is the output of the stage before, which may be joined too."""
        outputs = [x] if first and self.order[first - 1] in self.joined else []
        for name in self.order[first:]:
            x = self._stage(name)(x)
            if name in self.joined:
                outputs.append(x)
        rows, cols = (int(side) for side in outputs[-1].shape[-2:])
        return torch.cat([_average_down(y, rows, cols) for y in outputs], 1)

    def forward(self, pixels: Tensor) -> tuple[Tensor, int, int]:
        """Annotations (B, L, D), and rows and columns of the grid, for any size that the backbone accepts."""
        return flatten(self.tail(self.trunk(pixels)))

    def grid(self) -> tuple[int, int]:
        """Rows and columns at the configured size."""
        with torch.no_grad():
            x = self.tail(self._trunk_of_black())
        return int(x.shape[2]), int(x.shape[3])

    def cached_shape(self) -> tuple[int, int, int]:
        """Channels, rows and columns of the trunk's output at the configured size."""
        x = self._trunk_of_black()
        return int(x.shape[1]), int(x.shape[2]), int(x.shape[3])

    def _trunk_of_black(self) -> Tensor:
        """The trunk's output for a black picture of the configured size."""
        side = self.settings.size
        with torch.no_grad():
            return self.trunk(torch.zeros(1, side, side, 3))

    def fingerprint(self) -> str:
        """A hash of everything that the trunk's output depends on: stages, weights, normalisation."""
        trunk = self.order[: self.cut]
        joined = self.joined if self.cut == len(self.order) else ()
        digest = hashlib.sha256(repr((self.settings.name, trunk, joined)).encode())
        for name in trunk:
            for key, tensor in self._stage(name).state_dict().items():
                digest.update(f"{name}.{key}".encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        digest.update(self.mean.cpu().numpy().tobytes() + self.deviation.cpu().numpy().tobytes())
        return digest.hexdigest()[:32]


def flatten(grid: Tensor) -> tuple[Tensor, int, int]:
    """A grid (B, D, rows, cols) as annotations (B, L, D), with its rows and columns."""
    rows, cols = grid.shape[-2:]
    return grid.flatten(2).transpose(1, 2), rows, cols


def _average_down(grid: Tensor, rows: int, cols: int) -> Tensor:
    """A finer grid averaged to rows x cols.

    As matrix products, because adaptive pooling can be exported only where the sizes divide.
    """
    height, width = (int(side) for side in grid.shape[-2:])
    if (height, width) == (rows, cols):
        return grid
    return _averages(height, rows, grid) @ grid @ _averages(width, cols, grid).T


def _averages(cells: int, coarser: int, like: Tensor) -> Tensor:
    """(coarser, cells): each row averages the cells that a coarser cell touches, as adaptive pooling does."""
    at, low = torch.arange(cells), torch.arange(coarser).unsqueeze(1) * cells
    touched = (at >= low // coarser) & (at < -(-(low + cells) // coarser))
    return (touched / touched.sum(1, keepdim=True)).to(like.device, like.dtype)


def _annotation_stages(settings: EncoderSettings, shapes: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    """The stages that are joined, in the order of the network. `shapes` has channels and stride of every stage."""
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


def _stage_shapes(stages: Stages) -> dict[str, tuple[int, int]]:
    """Channels and stride of each stage, measured with a small picture."""
    side = 128
    x = torch.zeros(1, 3, side, side)
    shapes = {}
    with torch.no_grad():
        for name, stage in stages.items():
            x = stage.eval()(x)
            shapes[name] = (int(x.shape[1]), side // int(x.shape[2]))
    return shapes
