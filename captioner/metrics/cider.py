"""CIDEr-D with document frequencies of any corpus: for scoring few images, and as a reward in training.

What pycocoevalcap's `Cider` computes is CIDEr-D: counts clipped at the reference's and a Gaussian penalty on the
difference in length, sigma 6, n-grams of one to four words. The same arithmetic is here, apart from the corpus:
pycocoevalcap always takes the document frequencies from the references that it scores against.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from captioner.errors import CaptionerError

if TYPE_CHECKING:
    from numpy.typing import NDArray

N, SIGMA = 4, 6.0
_FORMAT = "captioner reference statistics 1"

Token = str | int  # words, or their numbers in a vocabulary
Ngram = tuple[Token, ...]


def ngram_counts(tokens: Sequence[Token]) -> Counter[Ngram]:
    """How often each run of one to four tokens occurs."""
    return Counter(tuple(tokens[i : i + n]) for n in range(1, N + 1) for i in range(len(tokens) - n + 1))


@dataclass(frozen=True)
class DocumentFrequencies:
    """In how many images' references each n-gram occurs; those of one image only are left out, as rare as unseen."""

    images: int
    counts: Mapping[Ngram, int]

    @classmethod
    def of(cls, references: Iterable[Sequence[Sequence[Token]]]) -> DocumentFrequencies:
        """From the tokens of every image's references."""
        counts: Counter[Ngram] = Counter()
        images = 0
        for group in references:
            counts.update({ngram for tokens in group for ngram in ngram_counts(tokens)})
            images += 1
        return cls(images, {ngram: count for ngram, count in counts.items() if count > 1})

    def save(self, file: Path) -> None:
        """As JSON, compressed where the name ends in .gz."""
        content = {
            "format": _FORMAT,
            "images": self.images,
            "document_frequencies": {" ".join(map(str, ngram)): count for ngram, count in self.counts.items()},
        }
        data = json.dumps(content, ensure_ascii=False).encode()
        file.write_bytes(gzip.compress(data, mtime=0) if file.suffix == ".gz" else data)

    @classmethod
    def load(cls, file: Path) -> DocumentFrequencies:
        try:
            data = file.read_bytes()
            content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
            if content["format"] != _FORMAT:
                raise ValueError(f"its format is {content['format']!r}, not {_FORMAT!r}")
            counts = {tuple(ngram.split(" ")): int(n) for ngram, n in content["document_frequencies"].items()}
            return cls(int(content["images"]), counts)
        except OSError as error:
            raise CaptionerError(f"{file}: can't be read ({error.strerror or error})") from None
        except (ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
            raise CaptionerError(
                f"{file}: not a file of reference statistics ({error}). Make one with "
                f"`captioner score --references captions.json --write-reference-stats {file.name}`."
            ) from None


@dataclass(frozen=True)
class _Vector:
    """Weighted n-grams of a caption, the length of each order's vector, and how many bigrams there are."""

    weights: dict[Ngram, float]
    norms: tuple[float, ...]
    length: int


class CiderReward:
    """Scores token lists against the references of their image, in tenths of a millisecond each.

    For self-critical training give the training references once, by image or in a sequence; the document
    frequencies are theirs unless others are given. With `end`, that token is added to every caption and
    reference, so that stopping too early costs what it should.
    """

    def __init__(
        self,
        references: Mapping[Any, Sequence[Sequence[Token]]] | Sequence[Sequence[Sequence[Token]]],
        frequencies: DocumentFrequencies | None = None,
        *,
        end: Token | None = None,
    ) -> None:
        self.references = references
        self.end = () if end is None else (end,)
        if frequencies is None:
            groups = references.values() if isinstance(references, Mapping) else references
            frequencies = DocumentFrequencies.of([self._ended(tokens) for tokens in group] for group in groups)
        self.frequencies = frequencies
        self._log_images = math.log(max(frequencies.images, 1))

    def __call__(self, captions: Sequence[Sequence[Token]], images: Sequence[Any]) -> NDArray[np.float64]:
        """The CIDEr-D of each caption for its image (1.05 is what the field prints as 105)."""
        vectors: dict[Any, list[_Vector]] = {}
        scores = np.zeros(len(captions))
        for k, (caption, image) in enumerate(zip(captions, images, strict=True)):
            if image not in vectors:
                vectors[image] = [self._vector(tokens) for tokens in self.references[image]]
            own = self._vector(caption)
            total = sum(_similarity(own, reference) for reference in vectors[image])
            scores[k] = 10.0 * total / N / len(vectors[image])
        return scores

    def _ended(self, tokens: Sequence[Token]) -> tuple[Token, ...]:
        return (*tokens, *self.end)

    def _vector(self, caption: Sequence[Token]) -> _Vector:
        tokens = self._ended(caption)
        weights: dict[Ngram, float] = {}
        squares = [0.0] * N
        frequency = self.frequencies.counts.get
        for ngram, count in ngram_counts(tokens).items():
            weight = count * (self._log_images - math.log(frequency(ngram, 1)))
            weights[ngram] = weight
            squares[len(ngram) - 1] += weight * weight
        return _Vector(weights, tuple(map(math.sqrt, squares)), max(0, len(tokens) - 1))


def _similarity(caption: _Vector, reference: _Vector) -> float:
    """The sum over the orders of n-grams of the clipped cosine, lowered by the difference in length."""
    products = [0.0] * N
    other = reference.weights
    for ngram, weight in caption.weights.items():
        if ngram in other:
            products[len(ngram) - 1] += min(weight, other[ngram]) * other[ngram]
    total = 0.0
    for product, norm, reference_norm in zip(products, caption.norms, reference.norms, strict=True):
        if norm and reference_norm:
            total += product / (norm * reference_norm)
    return total * math.exp(-((caption.length - reference.length) ** 2) / (2 * SIGMA**2))
