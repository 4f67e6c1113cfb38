"""Caption and Word: what the model wrote, how likely it was, where it attended. Failure: why there is no caption."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.images.reading import Picture
from captioner.text.sentences import sentence


@dataclass(frozen=True, eq=False, repr=False)
class Word:
    """One word with its log-probability, attention map and gate.

    Attributes:
        text: The word, in lower case.
        log_probability: Natural logarithm of the word's probability, given the picture and the words before.
        alpha: Attention weights of the grid's cells, (rows, cols). They add up to 1.
        gate: Share of the context that the decoder used, 0 to 1 (beta in the paper).
        cell: Row and column of the cell that a hard-attention model selected; None if it used all cells.
    """

    text: str
    log_probability: float
    alpha: NDArray[np.float32]
    gate: float = 1.0
    cell: tuple[int, int] | None = None

    @property
    def probability(self) -> float:
        return float(np.exp(self.log_probability))

    @property
    def entropy(self) -> float:
        """Entropy of the attention map in nats: 0 for a single cell, log(rows x cols) for a flat map."""
        p = self.alpha[self.alpha > 0].astype(np.float64)
        return float(-(p * np.log(p)).sum())

    def to_dict(self, *, maps: bool = True) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON. Without `maps`, the attention map is left out."""
        values: dict[str, Any] = {
            "text": self.text,
            "log_probability": self.log_probability,
            "gate": self.gate,
            "entropy": self.entropy,
            "cell": None if self.cell is None else list(self.cell),
        }
        return values | ({"alpha": self.alpha.tolist()} if maps else {})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Word):
            return NotImplemented
        return self._scalars() == other._scalars() and np.array_equal(self.alpha, other.alpha)

    def __hash__(self) -> int:
        return hash(self._scalars())

    def __repr__(self) -> str:
        return f"Word({self.text!r}, probability={self.probability:.3f})"

    def _scalars(self) -> tuple[object, ...]:
        return self.text, self.log_probability, self.gate, self.cell


@dataclass(frozen=True, repr=False)
class Caption:
    """A caption of a picture.

    Attributes:
        words: The words in order, without the end token.
        end: The end token, with its own probability and map; None if the length limit cut the caption.
        score: The value that the search ranks by: log-probability normalized by length, less repeat penalties.
        picture: The picture's name, size and path; None if the caption was made without one.
        alternatives: The other captions of the n-best list.
        confidence: Calibrated probability that a content word of the caption is right, 0 to 1; None if the model has
            no calibration, or if the sentence was given.
    """

    words: tuple[Word, ...]
    end: Word | None
    score: float
    picture: Picture | None = None
    alternatives: tuple[Caption, ...] = field(default=())
    confidence: float | None = None

    @property
    def text(self) -> str:
        """The words with spaces between them, as the model wrote them: "a man riding a wave"."""
        return " ".join(word.text for word in self.words)

    @property
    def sentence(self) -> str:
        """The text for readers: "A man riding a wave."."""
        return sentence([word.text for word in self.words])

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole caption, including its end."""
        end = self.end.log_probability if self.end else 0.0
        return sum(word.log_probability for word in self.words) + end

    @property
    def alphas(self) -> NDArray[np.float32]:
        """Attention maps of the words in order, (words, rows, cols)."""
        return np.stack([word.alpha for word in self.words]) if self.words else np.zeros((0, 0, 0), np.float32)

    def to_dict(self, *, maps: bool = True) -> dict[str, Any]:
        """Plain numbers, text and lists, ready for JSON. Without `maps`, the attention maps are left out."""
        return {
            "image": None if self.picture is None else self.picture.name,
            "caption": self.text,
            "sentence": self.sentence,
            "confidence": self.confidence,
            "score": self.score,
            "log_probability": self.log_probability,
            "words": [word.to_dict(maps=maps) for word in self.words],
            "end": None if self.end is None else self.end.to_dict(maps=maps),
            "alternatives": [other.to_dict(maps=maps) for other in self.alternatives],
        }

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Caption({self.text!r}, score={self.score:.3f})"

    def _repr_html_(self) -> str:
        """The picture, the sentence and one map per word, for notebooks."""
        from captioner.overlay.notebook import caption_html

        return caption_html(self)


@dataclass(frozen=True)
class Failure:
    """A picture without a caption, at its position in a stream.

    Attributes:
        name: Name of the picture.
        reason: A sentence that says what is wrong.
    """

    name: str
    reason: str
