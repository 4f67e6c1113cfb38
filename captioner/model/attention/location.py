"""Addressing: from scores to attention weights, by content alone or also by where earlier words attended.

    none      alpha_t = softmax_i(e_ti), or another normalizer (normalizers.py) here and below
    coverage  e_ti <- e_ti + (w . h + b) sum_{t' < t} alpha_t'i      (after See et al. 2017)
    ntm       the Neural Turing Machine's location addressing (Graves et al. 2014, section 3.3.2), on the grid:
              alpha'  = g_t softmax(e_t) + (1 - g_t) alpha_{t-1}      interpolation with the last map
              alpha'' = sum over 3x3 shifts d of s_t(d) alpha'(i - d)  a shift, in two dimensions
              alpha_t = alpha''^gamma_t / sum_i alpha''_i^gamma_t      sharpening
              g_t = sigmoid(.), s_t = softmax(.), gamma_t = 1 + softplus(.) of linear functions of h
    both      ntm on scores with coverage

The scores e_t have already been divided by the temperature. Weight that a shift moves past the edge of the picture is
lost; the sum in the sharpening makes up for it. Before the first word the last map is uniform and nothing is covered.
With `attend: both`, t counts the two attention steps of a word separately.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.normalizers import NORMALIZERS, Normalizer, softmax
from captioner.model.settings import AttentionSettings
from captioner.model.step_linear import StepLinear

Tensors = dict[str, Tensor]
SHIFTS = [(row, col) for row in (-1, 0, 1) for col in (-1, 0, 1)]


class ByContent(nn.Module):
    """alpha_t = softmax_i(e_ti), for one head or several."""

    def __init__(self, normalize: Normalizer = softmax) -> None:
        super().__init__()
        self.normalize = normalize

    def begin(self, annotations: Tensor) -> Tensors:
        """The state before the first word, (B, 1, ...)."""
        return {}

    def forward(self, scores: Tensor, hidden: Tensor, own: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        """alpha with the shape of the scores, (B, K, L) or (B, K, H, L); the scores behind it; the updated state."""
        return self.normalize(scores), scores, {}


class ByLocation(ByContent):
    """The Neural Turing Machine's addressing. Every head has its own last map."""

    def __init__(self, hidden_size: int, heads: int, grid: tuple[int, int], normalize: Normalizer = softmax) -> None:
        super().__init__(normalize)
        self.heads, self.grid = heads, grid
        self.control = StepLinear(hidden_size, heads * (2 + len(SHIFTS)))  # g, gamma and s

    def begin(self, annotations: Tensor) -> Tensors:
        rows, cols = self.grid
        if annotations.shape[1] != rows * cols:
            raise CaptionerError(f"{annotations.shape[1]} annotations do not fit a grid of {rows}x{cols}")
        uniform = torch.full_like(annotations[..., 0], 1 / (rows * cols))  # (B, L)
        return {"map": uniform[:, None, None].expand(-1, -1, self.heads, -1)}

    def forward(self, scores: Tensor, hidden: Tensor, own: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        content = self.normalize(scores).reshape(own["map"].shape)  # (B, K, H, L)
        control = self.control(hidden).view(*hidden.shape[:2], self.heads, -1)  # (B, K, H, 11)
        g, gamma = torch.sigmoid(control[..., :1]), 1 + F.softplus(control[..., 1:2])
        alpha = g * content + (1 - g) * own["map"]
        alpha = sharpened(self.shifted(alpha, F.softmax(control[..., 2:], -1)), gamma)
        return alpha.reshape(scores.shape), scores, {"map": alpha}

    def shifted(self, alpha: Tensor, shares: Tensor) -> Tensor:
        """The sum of the shifted maps, each weighted by its share."""
        rows, cols = self.grid
        padded = F.pad(alpha.reshape(*alpha.shape[:-1], rows, cols), (1, 1, 1, 1))
        shifted = [
            shares[..., n, None, None] * padded[..., 1 - down : 1 - down + rows, 1 - right : 1 - right + cols]
            for n, (down, right) in enumerate(SHIFTS)
        ]
        return torch.stack(shifted).sum(0).flatten(-2)


class Coverage(ByContent):
    """Adds past attention to the scores. `inner` turns them into attention weights."""

    def __init__(self, hidden_size: int, heads: int, inner: ByContent) -> None:
        super().__init__()
        self.weight = StepLinear(hidden_size, heads)  # w, b
        self.inner = inner

    def begin(self, annotations: Tensor) -> Tensors:
        return {"covered": torch.zeros_like(annotations[..., 0]).unsqueeze(1), **self.inner.begin(annotations)}

    def forward(self, scores: Tensor, hidden: Tensor, own: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        covered = own["covered"]  # (B, K, L)
        change = self.weight(hidden).unsqueeze(-1) * covered.unsqueeze(2)  # (B, K, H, L)
        alpha, scores, updated = self.inner(scores + change.reshape(scores.shape), hidden, own)
        return alpha, scores, {**updated, "covered": covered + alpha.reshape(change.shape).mean(2)}


def sharpened(alpha: Tensor, gamma: Tensor) -> Tensor:
    """alpha^gamma, normalised to sum to 1."""
    # In logarithms, because all powers may underflow to 0.
    return F.softmax(gamma * torch.log(alpha.clamp_min(1e-20)), -1)


def make_location(settings: AttentionSettings, hidden_size: int, grid: tuple[int, int] | None) -> ByContent:
    normalize = NORMALIZERS[settings.normalizer]
    location = ByContent(normalize)
    if settings.location in ("ntm", "both"):
        if grid is None:
            raise CaptionerError(f"model.attention.location={settings.location} needs the rows and columns of the grid")
        location = ByLocation(hidden_size, settings.heads, grid, normalize)
    if settings.location in ("coverage", "both"):
        location = Coverage(hidden_size, settings.heads, location)
    return location
