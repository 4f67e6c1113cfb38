"""How much the captions of a set vary: length, words, and how many of them are training captions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from captioner.metrics.means import Mean, mean
from captioner.metrics.ngrams import distinct_share
from captioner.text.nouns import repeated_nouns
from captioner.text.tokenizer import tokenize


@dataclass(frozen=True)
class Diversity:
    """Figures of tokenized captions. `distinct` falls as a set grows: compare sets of equal size only."""

    captions: int
    empty: int
    length: Mean  # words per caption
    vocabulary: int  # different words used
    distinct: dict[int, float]  # for n = 1 and 2: different n-grams / all n-grams
    different: float  # different captions / captions
    repeating: Mean  # share of captions that name something twice by the same noun
    unseen: Mean | None  # share of captions that are not training captions; None without training captions


def diversity(captions: Sequence[str], training: Iterable[str] | None = None) -> Diversity | None:
    """None without captions. `training` are the raw captions that the model was trained on."""
    if not captions:
        return None
    tokens = [tuple(tokenize(caption)) for caption in captions]
    length = mean([len(words) for words in tokens], [1] * len(tokens))
    repeating = mean([repeated_nouns(words) > 0 for words in tokens], [1] * len(tokens))
    assert length is not None and repeating is not None
    unseen = None
    if training is not None:
        known = {tuple(tokenize(caption)) for caption in training}
        unseen = mean([words not in known for words in tokens], [1] * len(tokens))
    return Diversity(
        captions=len(tokens),
        empty=sum(not words for words in tokens),
        length=length,
        vocabulary=len({word for words in tokens for word in words}),
        distinct={order: distinct_share(tokens, order) for order in (1, 2)},
        different=len(set(tokens)) / len(tokens),
        repeating=repeating,
        unseen=unseen,
    )
