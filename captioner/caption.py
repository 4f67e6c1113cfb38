"""Caption and Word: what the model said, how sure it was, and where it looked. Plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from captioner.images.reading import Picture


@dataclass(frozen=True)
class Word:
    """One word with its log-probability, attention map and gate."""

    text: str
    log_probability: float
    alpha: NDArray[np.float32]  # (rows, cols), sums to 1
    gate: float = 1.0  # beta_t: how much of the context the decoder let in
    cell: tuple[int, int] | None = None  # (row, col) that a hard model attended to, where it selected one

    @property
    def probability(self) -> float:
        return float(np.exp(self.log_probability))

    @property
    def entropy(self) -> float:
        """Of the attention map, in nats: 0 for one cell, log(rows x cols) for a flat map."""
        p = self.alpha[self.alpha > 0].astype(np.float64)
        return float(-(p * np.log(p)).sum())


@dataclass(frozen=True)
class Caption:
    """A sentence about a picture. The end token and its map are kept apart from the words."""

    words: tuple[Word, ...]
    end: Word | None  # None where the length limit cut the sentence
    score: float  # what the search ranked by: length-normalised log-probability, less penalties for words said again
    picture: Picture | None = field(default=None, repr=False)
    alternatives: tuple[Caption, ...] = field(default=(), repr=False)  # the rest of the n-best list

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def log_probability(self) -> float:
        """Of the whole sentence, its end included."""
        end = self.end.log_probability if self.end else 0.0
        return sum(word.log_probability for word in self.words) + end

    @property
    def alphas(self) -> NDArray[np.float32]:
        """Maps of the words in order, (words, rows, cols)."""
        return np.stack([word.alpha for word in self.words]) if self.words else np.zeros((0, 0, 0), np.float32)

    def __str__(self) -> str:
        return self.text
