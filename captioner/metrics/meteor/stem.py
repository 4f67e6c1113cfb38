"""Stems of English words: nltk's Snowball stemmer ("Porter2"), equal to the stemmer inside METEOR's jar."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nltk.stem.snowball import SnowballStemmer

# nltk leaves a final "e" that the jar removes. These are all such words among the 181,023 of METEOR's own tables
# and of COCO's captions.
_NLTK_LEAVES_E = frozenset(
    """
    communization iodization ionization irrationality irrationally peptization poetizer quantization realization
    realizations rotationally sensationalism sensationally solmization stylization theorization theorizer vocationally
    """.split()  # noqa: SIM905
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word."""
    stem: str = _stemmer().stem(word)
    return stem[:-1] if word in _NLTK_LEAVES_E else stem


@cache
def _stemmer() -> SnowballStemmer:
    from nltk.stem.snowball import SnowballStemmer  # nltk takes a third of a second to import

    return SnowballStemmer("english")
