"""CaptionDecoder: the interface of both decoders (LSTM and Transformer) that training, search and export use.

All tensors have the axes (B, K, ...): B images with K captions (training) or hypotheses (search) each. The captions of
an image share its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.model.attention.output import AttentionOutput
from captioner.model.fast_cpu import dropout
from captioner.model.grid_encoder import NoGridEncoder
from captioner.model.settings import ModelSettings

Tensors = dict[str, Tensor]

# Images whose captions have all ended leave the batch once the share of the others is no more than this.
MOSTLY_LIVE = 0.9


@dataclass(frozen=True)
class TeacherForced:
    """The result of a teacher-forced pass over captions: everything the loss needs, without padding.

    N is the number of words of all captions, end tokens included. Word j belongs to caption `row[j]` of the B * K
    captions, and is its word number `time[j]`.
    """

    logits: Tensor  # (N, V)
    targets: Tensor  # (N,)
    row: Tensor  # (N,)
    time: Tensor  # (N,)
    alpha: Tensor  # (N, L)
    cell: Tensor | None = None  # (N,): the sampled cell, for hard attention
    sampled: Tensor | None = None  # (N,) bool: whether the context vector is that cell, not the expectation
    scores: Tensor | None = None  # (N, L): e, where alpha is a function of them alone


class CaptionDecoder(nn.Module):
    """Takes annotations (B, L, D) and words; gives logits of the next words and the attention."""

    growing: tuple[str, ...] = ()  # tensors of the state whose third axis grows by one per word
    hard = False  # whether `step` and `forward` take `sampled`
    project: nn.Linear | None
    grid_encoder: NoGridEncoder
    embedding: nn.Embedding  # E
    output: nn.Linear  # L_o

    def __init__(self, settings: ModelSettings, annotation_size: int) -> None:
        super().__init__()
        self.settings = settings
        self.annotation_size = annotation_size

    def begin(self, annotations: Tensor) -> tuple[Tensors, Tensors]:
        """The state before the first word: `shared` by all hypotheses of an image, and `own` of each one (K = 1)."""
        raise NotImplementedError

    def step(
        self,
        shared: Tensors,
        own: Tensors,
        words: Tensor,
        *,
        noise: Tensor | None = None,
        sampled: Tensor | None = None,
    ) -> tuple[Tensor, Tensors, AttentionOutput]:
        """Feed the last words (B, K). Returns logits of the next words (B, K, V), the new `own`, and the attention.

        Hard attention only: rows (B, K) marked as `sampled` attend to the cell argmax(log alpha + noise).
        """
        raise NotImplementedError

    def annotate(self, annotations: Tensor) -> Tensor:
        """The annotations of the encoder, projected and passed through the grid encoder: (B, L, D)."""
        if annotations.shape[-1] != self.annotation_size:
            raise CaptionerError(
                f"annotations of width {annotations.shape[-1]} do not fit a decoder built for {self.annotation_size}"
            )
        if self.project is not None:
            annotations = F.relu(self.project(annotations))
        annotations = dropout(annotations, self.settings.annotation_dropout, self.training)
        return self.grid_encoder(annotations)  # type: ignore[no-any-return]

    def embed(self, words: Tensor) -> Tensor:
        """E y, with dropout in training."""
        return dropout(self.embedding(words), self.settings.embedding_dropout, self.training)


def expand_state(own: Tensors, count: int) -> Tensors:
    """The state of one hypothesis per image, repeated for `count` hypotheses."""
    return {name: state.expand(-1, count, *state.shape[2:]) for name, state in own.items()}


def check_sizes(
    annotations: Tensor, inputs: Tensor, targets: Tensor, lengths: Tensor, sampled: Tensor | None, cells: Tensor | None
) -> None:
    """Raise an error that names both sizes where captions do not fit each other or their images."""
    rows = tuple(inputs.shape[:2])
    sizes = {  # actual size, needed size
        "targets": (targets.shape, tuple(inputs.shape)),
        "lengths": (lengths.shape, rows),
        "annotations": (annotations.shape[:1], rows[:1]),
        "sampled": (rows if sampled is None else sampled.shape, rows),
        "cells": (rows if cells is None else cells.shape[:2], rows),
    }
    for name, (actual, needed) in sizes.items():
        if tuple(actual) != needed:
            raise CaptionerError(
                f"{name} of size {tuple(actual)} do not fit captions of size {tuple(inputs.shape)}: needed {needed}"
            )
    steps = min(tensor.shape[2] for tensor in (inputs, cells) if tensor is not None)
    if not 1 <= int(lengths.max()) <= steps:
        raise CaptionerError(f"captions of up to {int(lengths.max())} words do not fit {steps} steps")
