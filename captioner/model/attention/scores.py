"""Scores: how well cell i of the grid fits the state of the decoder, e_ti for all cells at once.

The query q_t is computed from the state h, the key k_i from the annotation a_i:

    additive    e_ti = w . tanh(k_i + q_t)                     (Bahdanau et al. 2015; Xu et al. 2015)
    dot         e_ti = k_i . q_t,  k_i = a_i, q_t = h          (Luong et al. 2015)
    scaled_dot  e_ti = k_i . q_t / sqrt(A)                     (Vaswani et al. 2017)
    general     e_ti = a_i . W h                               (Luong et al. 2015)
    cosine      e_ti = s_t cos(k_i, q_t),  s_t = softplus(w . h + b)     (Graves et al. 2014, content addressing)
    gaussian    e_ti = -|k_i - q_t|^2 / (2 width^2)            (Nadaraya 1964; Watson 1964)

Unless the table says otherwise, k_i = W_a a_i + b (scaled_dot: without b) and q_t = W_h h. Both have the width A, or
A / H with H heads. The heads of `general` are as wide as the state. Keys depend neither on the word nor on the caption
and are computed once per image.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.settings import AttentionSettings
from captioner.model.step_linear import StepLinear


class Score(nn.Module):
    """Scores e_ti of all cells, for all captions of an image at once."""

    def keys(self, annotations: Tensor) -> Tensor:
        """The part of the score that depends on the annotations alone, (B, L, ...)."""
        raise NotImplementedError

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        """Scores (B, K, L) for states (B, K, n); with several heads (B, K, H, L)."""
        raise NotImplementedError


class AdditiveScore(Score):
    """e_ti = w . tanh(W_a a_i + W_h h + b)."""

    def __init__(self, annotation_size: int, hidden_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size)  # W_a, b
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        self.weight = nn.Linear(size, 1, bias=False)  # w

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        # Under autocast, sum and tanh in half precision take half of the time.
        query = self.query(hidden).unsqueeze(2).to(keys.dtype)  # (B, K, 1, A)
        return self.weight((keys.unsqueeze(1) + query).tanh_()).squeeze(-1)  # type: ignore[no-any-return]


class DotScore(Score):
    """e_ti = a_i . h. It has no weights, so both must have the same width."""

    def keys(self, annotations: Tensor) -> Tensor:
        return annotations

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        return hidden @ keys.transpose(1, 2)


class ScaledDotScore(Score):
    """e_ti = W_a a_i . W_h h / sqrt(A). Dividing by the root keeps the variance of the scores the same for every width.

    There is no b: it would add the same number to the scores of all cells, which does not change a softmax.
    """

    def __init__(self, annotation_size: int, hidden_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size, bias=False)  # W_a
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        self.scale: float = size**-0.5

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        query: Tensor = self.query(hidden)
        return query @ keys.transpose(1, 2) * self.scale


class GeneralScore(Score):
    """e_ti = a_i . W h, a bilinear form. The key is a_i times W, the query is h."""

    def __init__(self, annotation_size: int, hidden_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, hidden_size, bias=False)  # W, transposed

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        return hidden @ keys.transpose(1, 2)


class CosineScore(Score):
    """e_ti = s_t cos(k_i, q_t). The lengths of the vectors do not count. The state sets the sharpness s_t."""

    def __init__(self, annotation_size: int, hidden_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size)  # W_a, b
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        self.sharpness = StepLinear(hidden_size, 1)  # w, b
        nn.init.constant_(self.sharpness.bias, 4.0)  # cosines are at most 1: a smaller s_t would start with flat maps

    def keys(self, annotations: Tensor) -> Tensor:
        return F.normalize(self.key(annotations), dim=-1)

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        cosine = F.normalize(self.query(hidden), dim=-1) @ keys.transpose(1, 2)
        return F.softplus(self.sharpness(hidden)) * cosine


class GaussianScore(Score):
    """e_ti = -|k_i - q_t|^2 / (2 width^2). Its softmax is Nadaraya-Watson kernel regression.

    With a fixed width only the projections of states and annotations have weights. With a learned width the kernel is
    parametric.
    """

    def __init__(self, annotation_size: int, hidden_size: int, size: int, width: float, *, learned: bool) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size)  # W_a, b
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        log_width = torch.tensor([math.log(width)])  # the logarithm, so that the width stays positive
        if learned:
            self.log_width = nn.Parameter(log_width)
        else:
            self.register_buffer("log_width", log_width, persistent=False)

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        query: Tensor = self.query(hidden)
        product = query @ keys.transpose(1, 2)  # (B, K, L)
        # |k - q|^2 multiplied out, which needs no tensor (B, K, L, A).
        square = query.square().sum(-1, keepdim=True) - 2 * product + keys.square().sum(-1).unsqueeze(1)
        return -square / (2 * torch.exp(2 * self.log_width))


class HeadScores(Score):
    """H scores, each with its own projections: (B, K, H, L)."""

    def __init__(self, scores: list[Score]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(scores)

    def keys(self, annotations: Tensor) -> Tensor:
        """The keys of all heads in one tensor, (B, L, H * A)."""
        return torch.cat([head.keys(annotations) for head in self.heads], -1)  # type: ignore[operator]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        parts = zip(self.heads, keys.chunk(len(self.heads), -1), strict=True)
        return torch.stack([head(part, hidden) for head, part in parts], 2)


def make_score(settings: AttentionSettings, annotation_size: int, hidden_size: int) -> Score:
    """The configured score. With several heads, each has a score of its own with its part of the width A."""
    if settings.heads > 1:
        width = settings.size // settings.heads
        return HeadScores([_one(settings, annotation_size, hidden_size, width) for _ in range(settings.heads)])
    return _one(settings, annotation_size, hidden_size, settings.size)


def _one(settings: AttentionSettings, annotation_size: int, hidden_size: int, size: int) -> Score:
    sizes = annotation_size, hidden_size, size
    if settings.score == "dot":
        if annotation_size != hidden_size:  # the settings can check this only where the annotations are projected
            raise CaptionerError(
                f"model.attention.score=dot multiplies annotations of width {annotation_size} with states of "
                f"model.hidden_size={hidden_size}; set model.annotation_size={hidden_size} or "
                "model.attention.score=general"
            )
        return DotScore()
    if settings.score == "general":
        return GeneralScore(annotation_size, hidden_size)
    if settings.score == "gaussian":
        return GaussianScore(*sizes, settings.width, learned=settings.learn_width)
    return {"additive": AdditiveScore, "scaled_dot": ScaledDotScore, "cosine": CosineScore}[settings.score](*sizes)
