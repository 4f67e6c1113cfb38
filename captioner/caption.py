"""Caption and Word: what the model wrote, how likely it was, where it attended. Failure: why there is no caption."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.images.reading import Picture
from captioner.text.sentences import sentence


@dataclass(frozen=True, eq=False, repr=False)
class Curves:
    """A word's probability while more and more of the picture is blurred (deletion) or uncovered (insertion).

    Attributes:
        shares: Shares of the cells that are blurred or uncovered, 0 to 1.
        deletion: Probability with that share blurred, most attended cells first.
        insertion: Probability with only that share uncovered, most attended cells first.
        random_deletion: As `deletion`, in random order.
        random_insertion: As `insertion`, in random order.
    """

    shares: NDArray[np.float64]
    deletion: NDArray[np.float32]
    insertion: NDArray[np.float32]
    random_deletion: NDArray[np.float32]
    random_insertion: NDArray[np.float32]

    def to_dict(self) -> dict[str, list[float]]:
        """Lists of numbers, ready for JSON."""
        return {name: [round(float(value), 5) for value in getattr(self, name)] for name in self.__dataclass_fields__}


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What a word depended on, measured by blurring parts of the picture.

    Attributes:
        relied: How much the word's log-probability falls when a window around the cell is blurred, (rows, cols).
        seen: Log-probability with the picture.
        blurred: Log-probability after the same words when the whole picture is blurred: what habit alone gives.
        correlation: Rank correlation of attention and `relied`; None if one of them is flat.
        curves: Deletion and insertion, where they were measured.
    """

    relied: NDArray[np.float32]
    seen: float
    blurred: float
    correlation: float | None = None
    curves: Curves | None = None

    @property
    def habit(self) -> float:
        """The share of the word's probability that is left without the picture, 0 to 1."""
        return float(min(1.0, np.exp(self.blurred - self.seen)))

    def to_dict(self, *, maps: bool = True) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON. Without `maps`, the map and the curves are left out."""
        values: dict[str, Any] = {
            "seen": self.seen,
            "blurred": self.blurred,
            "habit": self.habit,
            "correlation": self.correlation,
        }
        if maps:
            values |= {"relied": self.relied.tolist(), "curves": self.curves and self.curves.to_dict()}
        return values


@dataclass(frozen=True, eq=False, repr=False)
class Word:
    """One word with its log-probability, attention map and gate.

    Attributes:
        text: The word, in lower case.
        log_probability: Natural logarithm of the word's probability, given the picture and the words before.
        alpha: Attention weights of the grid's cells, (rows, cols). They add up to 1.
        gate: Share of the context that the decoder used, 0 to 1 (beta in the paper).
        cell: Row and column of the cell that a hard-attention model selected; None if it used all cells.
        alternatives: The likeliest words at this position with their probabilities; empty if they were not asked for.
        evidence: What the word depended on; None if it was not measured.
    """

    text: str
    log_probability: float
    alpha: NDArray[np.float32]
    gate: float = 1.0
    cell: tuple[int, int] | None = None
    alternatives: tuple[tuple[str, float], ...] = ()
    evidence: Evidence | None = None

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
        if self.alternatives:
            values["alternatives"] = [[text, probability] for text, probability in self.alternatives]
        if self.evidence is not None:
            values["evidence"] = self.evidence.to_dict(maps=maps)
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
        confidence: The expected share of its content words that are right, 0 to 1; None if the model has no
            calibration, or if the sentence was given.
        backend: What computed it: "onnx", "int8" (8-bit graphs) or "torch".
    """

    words: tuple[Word, ...]
    end: Word | None
    score: float
    picture: Picture | None = None
    alternatives: tuple[Caption, ...] = field(default=())
    confidence: float | None = None
    backend: str | None = None

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
            "backend": self.backend,
            "words": [word.to_dict(maps=maps) for word in self.words],
            "end": None if self.end is None else self.end.to_dict(maps=maps),
            "alternatives": [other.to_dict(maps=maps) for other in self.alternatives],
        }

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Caption({self.text!r}, score={self.score:.3f})"

    def show(self) -> None:
        """Show the caption and where the model looked: in the notebook, or in a browser where there is none."""
        from captioner.overlay.notebook import show

        show(self)

    def _repr_html_(self) -> str:
        """The viewer, and one map per word as pictures, for notebooks."""
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
