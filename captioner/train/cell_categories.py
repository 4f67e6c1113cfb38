"""An auxiliary head: from each annotation, the categories of the objects that cover its cell.

It is trained with the annotations, so that single cells say what is there, and belongs to the run only: bundles do not
contain it.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class CellCategories(nn.Module):
    """Logits of every category for every cell."""

    def __init__(self, annotation_size: int, categories: int) -> None:
        super().__init__()
        self.linear = nn.Linear(annotation_size, categories)
        nn.init.constant_(self.linear.bias, -4.0)  # most categories cover few cells

    def forward(self, annotations: Tensor) -> Tensor:
        """(B, L, categories) from (B, L, D)."""
        return self.linear(annotations)  # type: ignore[no-any-return]


def cell_category_loss(logits: Tensor, shares: Tensor, annotated: Tensor) -> Tensor:
    """Binary cross-entropy with the share of the cell that each category covers, both (B, L, categories).

    Summed over categories, averaged over cells, and over the images of the batch; those without boxes add nothing.
    """
    per_image = F.binary_cross_entropy_with_logits(logits.float(), shares, reduction="none").sum(-1).mean(-1)
    return (per_image * annotated).mean()
