"""n-grams of token lists, by nltk: for CIDEr-D, the BLEU reward and the diversity of captions.

nltk is imported by the functions, because it takes a third of a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

ORDERS = 4  # BLEU and CIDEr count n-grams of one to four tokens

Token = str | int  # a word, or its number in a vocabulary
Ngram = tuple[Token, ...]


def ngrams_up_to_four(tokens: Sequence[Token]) -> Iterable[Ngram]:
    """Every n-gram of one to four tokens, with repetitions."""
    from nltk.util import everygrams

    ngrams: Iterable[Ngram] = everygrams(tokens, max_len=ORDERS)
    return ngrams


def ngram_counts(tokens: Sequence[Token]) -> Counter[Ngram]:
    """How often each n-gram of one to four tokens occurs."""
    return Counter(ngrams_up_to_four(tokens))


def distinct_share(captions: Iterable[Sequence[Token]], order: int) -> float:
    """Different n-grams of one order divided by all n-grams of that order; 0 without n-grams."""
    from nltk.util import ngrams

    listed = [ngram for tokens in captions for ngram in ngrams(tokens, order)]
    return len(set(listed)) / len(listed) if listed else 0.0
