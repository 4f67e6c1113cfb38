"""Addressing: from scores to a map, by content alone or also by where earlier words looked.

    none      alpha_t = softmax_i(e_ti)
    coverage  e_ti <- e_ti + (w . h + b) sum_{t' < t} alpha_t'i      (after See et al. 2017)
    ntm       the Neural Turing Machine's location addressing (Graves et al. 2014, section 3.3.2), on the grid:
              alpha'  = g_t softmax(e_t) + (1 - g_t) alpha_{t-1}      interpolation with the last map
              alpha'' = sum over 3x3 shifts d of s_t(d) alpha'(i - d)  a shift, in two dimensions
              alpha_t = alpha''^gamma_t / sum_i alpha''_i^gamma_t      sharpening
              g_t = sigmoid(.), s_t = softmax(.), gamma_t = 1 + softplus(.) of linear functions of h
    both      ntm on scores with coverage

The scores e_t have been divided by the temperature already. What goes past the picture's edge is lost, and the
sharpening's sum makes up for it. Before the first word the last map is even and nothing is covered. Where a word looks
twice (place both), t counts looks: the second goes on from the first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.settings import AttentionSettings
from captioner.model.step_linear import StepLinear

Tensors = dict[str, Tensor]
SHIFTS = [(row, col) for row in (-1, 0, 1) for col in (-1, 0, 1)]


class ByContent(nn.Module):
    """alpha_t = softmax_i(e_ti), of one head or several."""

    def begin(self, annotations: Tensor) -> Tensors:
        """What is remembered before the first word, (B, 1, ...)."""
        return {}

    def forward(self, scores: Tensor, query: Tensor, own: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        """alpha like the scores, (B, K, L) or (B, K, H, L), the scores it is made from, what is remembered."""
        return F.softmax(scores, -1), scores, {}


class ByLocation(ByContent):
    """The Neural Turing Machine's addressing; every head remembers its own last map."""

    def __init__(self, hidden_size: int, heads: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.heads, self.grid = heads, grid
        self.control = StepLinear(hidden_size, heads * (2 + len(SHIFTS)))  # of g, gamma and s

    def begin(self, annotations: Tensor) -> Tensors:
        rows, cols = self.grid
        if annotations.shape[1] != rows * cols:
            raise CaptionerError(f"{annotations.shape[1]} annotations are no grid of {rows}x{cols}")
        even = torch.full_like(annotations[..., 0], 1 / (rows * cols))  # (B, L)
        return {"map": even[:, None, None].expand(-1, -1, self.heads, -1)}

    def forward(self, scores: Tensor, query: Tensor, own: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        content = F.softmax(scores, -1).reshape(own["map"].shape)  # (B, K, H, L)
        control = self.control(query).view(*query.shape[:2], self.heads, -1)  # (B, K, H, 11)
        g, gamma = torch.sigmoid(control[..., :1]), 1 + F.softplus(control[..., 1:2])
        alpha = g * content + (1 - g) * own["map"]
        alpha = sharpened(self.shifted(alpha, F.softmax(control[..., 2:], -1)), gamma)
        return alpha.reshape(scores.shape), scores, {"map": alpha}

    def shifted(self, alpha: Tensor, shares: Tensor) -> Tensor:
        """The map moved by each shift, as much as its share says."""
        rows, cols = self.grid
        wide = F.pad(alpha.reshape(*alpha.shape[:-1], rows, cols), (1, 1, 1, 1))
        moved = [
            shares[..., n, None, None] * wide[..., 1 - down : 1 - down + rows, 1 - right : 1 - right + cols]
            for n, (down, right) in enumerate(SHIFTS)
        ]
        return torch.stack(moved).sum(0).flatten(-2)


class Coverage(ByContent):
    """Scores that know how much each place was looked at; the maps are then made by `inner`."""

    def __init__(self, hidden_size: int, heads: int, inner: ByContent) -> None:
        super().__init__()
        self.weight = StepLinear(hidden_size, heads)  # w, b
        self.inner = inner

    def begin(self, annotations: Tensor) -> Tensors:
        return {"covered": torch.zeros_like(annotations[..., 0]).unsqueeze(1), **self.inner.begin(annotations)}

    def forward(self, scores: Tensor, query: Tensor, own: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        covered = own["covered"]  # (B, K, L)
        tired = self.weight(query).unsqueeze(-1) * covered.unsqueeze(2)  # (B, K, H, L)
        alpha, scores, kept = self.inner(scores + tired.reshape(scores.shape), query, own)
        return alpha, scores, {**kept, "covered": covered + alpha.reshape(tired.shape).mean(2)}


def sharpened(alpha: Tensor, gamma: Tensor) -> Tensor:
    """alpha^gamma, summing to 1 again."""
    return F.softmax(gamma * torch.log(alpha.clamp_min(1e-20)), -1)  # powers themselves may all become 0


def make_location(settings: AttentionSettings, hidden_size: int, grid: tuple[int, int] | None) -> ByContent:
    made = ByContent()
    if settings.location in ("ntm", "both"):
        if grid is None:
            raise CaptionerError(f"model.attention.location={settings.location} needs the rows and columns of the grid")
        made = ByLocation(hidden_size, settings.heads, grid)
    return Coverage(hidden_size, settings.heads, made) if settings.location in ("coverage", "both") else made
