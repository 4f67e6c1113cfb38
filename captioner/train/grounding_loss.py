"""Grounded attention: the attention of a noun is trained to be inside the boxes of the objects that it names.

With p = softmax(e) of the scores e of a word, and c_i the share of cell i that the boxes cover, a word loses

    mass     -log sum_i p_i c_i                      anywhere inside the boxes is right
    spread   -sum_i q_i log p_i,  q = c / sum_i c_i  evenly over the boxes is right

Sums over words are divided by the number of captions, as all terms of the loss. The softmax is used for every
normalizer: where a sparse one gives 0 to all cells inside the boxes, the logarithm of its own weights has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.model.caption_decoder import TeacherForced
from captioner.train.box_targets import BatchBoxes


def grounding_loss(
    forced: TeacherForced,
    word_groups: Sequence[NDArray[np.int32]],  # of the B * K captions
    boxes: BatchBoxes,
    kind: str,
) -> tuple[Tensor, int]:
    """Sum over the words that name boxes in their view, and the number of these words."""
    table = np.full((len(word_groups), int(forced.time.max()) + 1), -1, np.int64)  # the end token names nothing
    for row, groups in enumerate(word_groups):
        table[row, : len(groups)] = groups
    named = table[forced.row.cpu().numpy(), forced.time.cpu().numpy()]
    words = np.flatnonzero(named >= 0)
    maps = boxes.maps_of(named[words])
    visible = maps.any(1)  # a crop may leave boxes out
    words, maps = words[visible], maps[visible]
    if not len(words):
        return forced.alpha.new_zeros(()), 0
    cover = torch.from_numpy(maps).to(forced.alpha.device)
    index = torch.from_numpy(words).to(forced.alpha.device)
    if forced.scores is not None:
        log_p = torch.log_softmax(forced.scores[index].float(), -1)
    else:  # several heads or attention steps: their mean map
        log_p = torch.log(forced.alpha[index].float().clamp_min(1e-20))
    return losses(log_p, cover, kind).sum(), len(words)


def losses(log_p: Tensor, cover: Tensor, kind: str) -> Tensor:
    """(N,) from the logarithm of maps (N, L) and the shares that boxes cover (N, L)."""
    if kind == "mass":
        return -torch.logsumexp(log_p + torch.log(cover.clamp_min(1e-6)), -1)
    return -(cover / cover.sum(-1, keepdim=True) * log_p).sum(-1)
