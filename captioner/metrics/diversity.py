"""How the captions of a set vary: their length, their words, and how many are sentences that were learnt by heart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from captioner.metrics.means import Mean, mean
from captioner.text.tokenizer import tokenize


@dataclass(frozen=True)
class Diversity:
    """Of captions as the scorers read them; `distinct` falls as a set grows, so compare sets of one size only."""

    captions: int
    empty: int
    length: Mean  # words a caption
    vocabulary: int  # different words used
    distinct: dict[int, float]  # n: different n-grams over all n-grams, for n = 1, 2
    different: float  # different captions over captions
    unseen: Mean | None  # share of captions that are no training caption; None where those are not at hand


def diversity(captions: Sequence[str], training: Iterable[str] | None = None) -> Diversity | None:
    """None where there is no caption. `training` are the raw captions a model was trained on."""
    if not captions:
        return None
    tokens = [tuple(tokenize(caption)) for caption in captions]
    length = mean([len(words) for words in tokens], [1] * len(tokens))
    assert length is not None
    known = None if training is None else {tuple(tokenize(caption)) for caption in training}
    return Diversity(
        captions=len(tokens),
        empty=sum(not words for words in tokens),
        length=length,
        vocabulary=len({word for words in tokens for word in words}),
        distinct={n: _distinct(tokens, n) for n in (1, 2)},
        different=len(set(tokens)) / len(tokens),
        unseen=None if known is None else _unseen(tokens, known),
    )


def _distinct(captions: Sequence[tuple[str, ...]], n: int) -> float:
    grams = [words[i : i + n] for words in captions for i in range(len(words) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0


def _unseen(captions: Sequence[tuple[str, ...]], known: Collection[tuple[str, ...]]) -> Mean | None:
    return mean([words not in known for words in captions], [1] * len(captions))
