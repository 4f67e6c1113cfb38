"""A finer grid: one level of the top-down pathway of a feature pyramid (Lin et al. 2017).

    p = relu(W_l fine + upsample(blocks(W_t coarse + b)))

`fine` is the output of the trunk, whose cells are small. `coarse` are the annotations of the tail, which say what is in
the picture. W_t comes before the upsampling (by repeating cells): the result is the same, with a fraction of the
products. The blocks are Transformer blocks over the coarse cells with their positions, so that a cell also depends on
the picture around it. Without blocks, the coarse cells are used as they are.

W_l is 0 at first: training starts from what the coarse grid says.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from captioner.model.fast_cpu import convolve
from captioner.model.self_attention import EncoderBlock, encode_grid_positions
from captioner.model.settings import PyramidSettings


class Pyramid(nn.Module):
    """From a fine and a coarse grid to one as fine as the first, with `settings.size` channels."""

    def __init__(self, settings: PyramidSettings, fine: int, coarse: int, factor: int) -> None:
        """`fine` and `coarse` are the channels of the grids; `factor` is how much finer the first is."""
        super().__init__()
        size = settings.size
        self.factor = factor
        self.lateral = nn.Conv2d(fine, size, 1, bias=False)  # W_l
        self.top = nn.Conv2d(coarse, size, 1)  # W_t, b
        nn.init.zeros_(self.lateral.weight)
        self.blocks = nn.ModuleList(
            EncoderBlock(size, settings.heads, settings.dropout) for _ in range(settings.blocks)
        )

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """(B, size, rows, cols) for `fine` (B, C, rows, cols)."""
        rows, cols = int(fine.shape[-2]), int(fine.shape[-1])
        top = self._attend(_pointwise(self.top, coarse))
        top = F.interpolate(top, scale_factor=float(self.factor), mode="nearest")
        if tuple(top.shape[-2:]) != (rows, cols):  # the coarse grid of an odd number of cells is rounded up
            top = top[..., :rows, :cols]
        return F.relu(_pointwise(self.lateral, fine) + top)

    def _attend(self, coarse: Tensor) -> Tensor:
        if not len(self.blocks):
            return coarse
        size, rows, cols = (int(side) for side in coarse.shape[1:])
        x = coarse.flatten(2).transpose(1, 2) + encode_grid_positions(rows, cols, size).to(coarse.device)
        for block in self.blocks:
            x = block(x)
        return x.transpose(1, 2).reshape(-1, size, rows, cols)


def _pointwise(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """A 1x1 convolution."""
    y = convolve(x, layer.weight, (1, 1), (0, 0), 1)
    return y if layer.bias is None else y + layer.bias.view(-1, 1, 1)
