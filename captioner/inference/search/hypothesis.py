"""Hypothesis: a word sequence that a search found, with the model's output at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption, Word
from captioner.images.reading import Picture
from captioner.inference.backend import Backend
from captioner.text.vocabulary import UNK


@dataclass(frozen=True)
class Hypothesis:
    """Arrays have one row per word and, if the sentence ended, one more for the end token."""

    words: tuple[int, ...]
    ended: bool  # False if the length limit cut the sentence
    score: float  # the search ranks by it: length-normalized log-probability, less repeat penalties
    log_probabilities: NDArray[np.float32]  # (n,)
    alphas: NDArray[np.float32]  # (n, L)
    gates: NDArray[np.float32]  # (n,)
    cells: NDArray[np.int64] | None  # (n,): the cells that a hard model selected
    # For each row the likeliest words with their probabilities, where `force` was asked for them.
    likeliest: tuple[tuple[tuple[int, float], ...], ...] = ()


def normalized(total: float, length: int, power: float) -> float:
    """The score that ranks hypotheses of different lengths; the length counts the end token."""
    return float(total / max(length, 1) ** power)


def caption_of(
    hypothesis: Hypothesis, backend: Backend, picture: Picture | None, tokens: Sequence[str] | None = None
) -> Caption:
    """A hypothesis as a Caption. `tokens` replace `<unk>` where the vocabulary lacks a given word."""
    vocabulary = backend.vocabulary
    texts = [vocabulary.words[number] for number in hypothesis.words]
    if tokens is not None:
        texts = [token if text == UNK else text for text, token in zip(texts, tokens, strict=True)]
    if hypothesis.ended:
        texts.append(vocabulary.words[vocabulary.end])
    cells = hypothesis.cells
    words = [
        Word(
            text=text,
            log_probability=float(hypothesis.log_probabilities[i]),
            alpha=hypothesis.alphas[i].reshape(backend.rows, backend.cols),
            gate=float(hypothesis.gates[i]),
            cell=None if cells is None else divmod(int(cells[i]), backend.cols),
        )
        for i, text in enumerate(texts)
    ]
    end = words.pop() if hypothesis.ended else None
    return Caption(tuple(words), end, hypothesis.score, picture, backend=backend.name)
