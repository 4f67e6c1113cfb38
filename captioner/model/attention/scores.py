"""Scores: how well place i fits what the decoder wants to know, e_ti for all places at once.

A query q_t is made from the state h, a key k_i from the annotation a_i:

    additive    e_ti = w . tanh(k_i + q_t)                     (Bahdanau et al. 2015; Xu et al. 2015)
    dot         e_ti = k_i . q_t,  k_i = a_i, q_t = h          (Luong et al. 2015)
    scaled_dot  e_ti = k_i . q_t / sqrt(A)                     (Vaswani et al. 2017)
    general     e_ti = a_i . W h                               (Luong et al. 2015)
    cosine      e_ti = s_t cos(k_i, q_t),  s_t = softplus(w . h + b)     (Graves et al. 2014, content addressing)
    gaussian    e_ti = -|k_i - q_t|^2 / (2 width^2)            (Nadaraya 1964; Watson 1964)

Where nothing else is said k_i = W_a a_i + b (scaled_dot: no b) and q_t = W_h h, both of width A, or A / H with H
heads; general's heads are as wide as the state. Keys are computed once an image.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.core import AdditiveScore, Score
from captioner.model.settings import AttentionSettings
from captioner.model.step_linear import StepLinear


def make_score(settings: AttentionSettings, annotation_size: int, hidden_size: int) -> Score:
    """The configured score; for several heads one each, of a part of the width A where it has one."""
    if settings.heads > 1:
        width = settings.size // settings.heads
        return HeadScores([_one(settings, annotation_size, hidden_size, width) for _ in range(settings.heads)])
    return _one(settings, annotation_size, hidden_size, settings.size)


def _one(settings: AttentionSettings, annotation_size: int, hidden_size: int, size: int) -> Score:
    sizes = annotation_size, hidden_size, size
    if settings.score == "dot":
        if annotation_size != hidden_size:  # known before only where the annotations are projected
            raise CaptionerError(
                f"model.attention.score=dot multiplies annotations of width {annotation_size} with states of "
                f"model.hidden_size={hidden_size}; set model.annotation_size to that, or model.attention.score=general"
            )
        return DotScore()
    if settings.score == "general":
        return GeneralScore(annotation_size, hidden_size)
    if settings.score == "gaussian":
        return GaussianScore(*sizes, settings.width, learned=settings.learn_width)
    return {"additive": AdditiveScore, "scaled_dot": ScaledDotScore, "cosine": CosineScore}[settings.score](*sizes)


class DotScore(Score):
    """e_ti = a_i . h: no weights at all, so both must have the same width."""

    def keys(self, annotations: Tensor) -> Tensor:
        return annotations

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        return hidden @ keys.transpose(1, 2)


class ScaledDotScore(Score):
    """e_ti = W_a a_i . W_h h / sqrt(A): the root keeps the scores' spread the same whatever the width.

    No b: it would add the same to the scores of all places, which a softmax doesn't see.
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
    """e_ti = a_i . W h, a bilinear form: the key is a_i times W, the query h itself."""

    def __init__(self, annotation_size: int, hidden_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, hidden_size, bias=False)  # W, transposed

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        return hidden @ keys.transpose(1, 2)


class CosineScore(Score):
    """e_ti = s_t cos(k_i, q_t): lengths don't count, and the state itself says how sharply to look."""

    def __init__(self, annotation_size: int, hidden_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size)  # W_a, b
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        self.sharpness = StepLinear(hidden_size, 1)  # w, b
        nn.init.constant_(self.sharpness.bias, 4.0)  # a cosine is at most 1: with less, first maps are flat

    def keys(self, annotations: Tensor) -> Tensor:
        return F.normalize(self.key(annotations), dim=-1)

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        cosine = F.normalize(self.query(hidden), dim=-1) @ keys.transpose(1, 2)
        return F.softplus(self.sharpness(hidden)) * cosine


class GaussianScore(Score):
    """e_ti = -|k_i - q_t|^2 / (2 width^2), whose softmax is the Nadaraya-Watson kernel regression.

    With a fixed width the pooling has no weights of its own beyond the projections that bring states and annotations
    into one space; with a learned one it is the parametric kind.
    """

    def __init__(self, annotation_size: int, hidden_size: int, size: int, width: float, *, learned: bool) -> None:
        super().__init__()
        self.key = nn.Linear(annotation_size, size)  # W_a, b
        self.query = StepLinear(hidden_size, size, bias=False)  # W_h
        log_width = torch.tensor([math.log(width)])  # its logarithm, so that a width stays positive
        if learned:
            self.log_width = nn.Parameter(log_width)
        else:
            self.register_buffer("log_width", log_width, persistent=False)

    def keys(self, annotations: Tensor) -> Tensor:
        return self.key(annotations)  # type: ignore[no-any-return]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        query: Tensor = self.query(hidden)
        product = query @ keys.transpose(1, 2)  # (B, K, L)
        # |k - q|^2 multiplied out: no (B, K, L, A) is ever made.
        square = query.square().sum(-1, keepdim=True) - 2 * product + keys.square().sum(-1).unsqueeze(1)
        return -square / (2 * torch.exp(2 * self.log_width))


class HeadScores(Score):
    """H scores side by side, each with its own projections: (B, K, H, L)."""

    def __init__(self, scores: list[Score]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(scores)

    def keys(self, annotations: Tensor) -> Tensor:
        """All heads' keys in one tensor, (B, L, H * A)."""
        return torch.cat([head.keys(annotations) for head in self.heads], -1)  # type: ignore[operator]

    def forward(self, keys: Tensor, hidden: Tensor) -> Tensor:
        parts = zip(self.heads, keys.chunk(len(self.heads), -1), strict=True)
        return torch.stack([head(part, hidden) for head, part in parts], 2)
