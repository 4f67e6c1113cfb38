"""CIDEr-D with the document frequencies of any corpus: to score few images, and as a reward in training.

pycocoevalcap's `Cider` computes CIDEr-D: n-grams of one to four words, counts clipped at the reference's counts, and a
Gaussian penalty (sigma 6) on the difference in length. This module computes the same. The one difference is the
corpus: pycocoevalcap always takes the document frequencies from the references that it scores against.
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
from captioner.metrics.ngrams import ORDERS, Ngram, Token, ngram_counts, ngrams_up_to_four

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIGMA = 6.0
_FORMAT = "captioner reference statistics 1"


@dataclass(frozen=True)
class DocumentFrequencies:
    """For each n-gram, the number of images with a reference that contains it.

    n-grams of a single image are left out: they weigh as much as unseen ones.
    """

    images: int
    counts: Mapping[Ngram, int]

    @classmethod
    def of(cls, references: Iterable[Sequence[Sequence[Token]]]) -> DocumentFrequencies:
        """Count the tokenized references, one group per image."""
        counts: Counter[Ngram] = Counter()
        images = 0
        for group in references:
            counts.update({ngram for tokens in group for ngram in ngrams_up_to_four(tokens)})
            images += 1
        return cls(images, {ngram: count for ngram, count in counts.items() if count > 1})

    def save(self, file: Path) -> None:
        """Write as JSON, compressed if the name ends in .gz."""
        content = {
            "format": _FORMAT,
            "images": self.images,
            "document_frequencies": {" ".join(map(str, ngram)): count for ngram, count in self.counts.items()},
        }
        data = json.dumps(content, ensure_ascii=False).encode()
        file.write_bytes(gzip.compress(data, mtime=0) if file.suffix == ".gz" else data)

    @classmethod
    def load(cls, file: Path) -> DocumentFrequencies:
        """Read a file that `save` wrote."""
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
                f"{file}: not a file of reference statistics ({error}). Write one with "
                f"`captioner score --references captions.json --write-reference-stats {file.name}`."
            ) from None


@dataclass(frozen=True)
class _Vector:
    """A caption as weighted n-grams, the Euclidean norm per order of n-grams, and the number of bigrams."""

    weights: dict[Ngram, float]
    norms: tuple[float, ...]
    length: int


class CiderReward:
    """Scores token lists against the references of their image, in about 0.2 ms per caption.

    For self-critical training, give the training references once, as a mapping or a sequence of images. Document
    frequencies are those of the references unless others are given. With `end`, that token is appended to every
    caption and reference. A caption that stops too early then loses the n-grams with the end token.
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
            frequencies = DocumentFrequencies.of([self._with_end(tokens) for tokens in group] for group in groups)
        self.frequencies = frequencies
        self._log_images = math.log(max(frequencies.images, 1))

    def __call__(self, captions: Sequence[Sequence[Token]], images: Sequence[Any]) -> NDArray[np.float64]:
        """CIDEr-D of each caption for its image; papers print 1.05 as 105."""
        vectors: dict[Any, list[_Vector]] = {}
        scores = np.zeros(len(captions))
        for k, (caption, image) in enumerate(zip(captions, images, strict=True)):
            if image not in vectors:
                vectors[image] = [self._vector(tokens) for tokens in self.references[image]]
            vector = self._vector(caption)
            total = sum(_similarity(vector, reference) for reference in vectors[image])
            scores[k] = 10.0 * total / ORDERS / len(vectors[image])
        return scores

    def _with_end(self, tokens: Sequence[Token]) -> tuple[Token, ...]:
        return (*tokens, *self.end)

    def _vector(self, caption: Sequence[Token]) -> _Vector:
        tokens = self._with_end(caption)
        weights: dict[Ngram, float] = {}
        squares = [0.0] * ORDERS
        frequency = self.frequencies.counts.get
        log_images = self._log_images
        for ngram, count in ngram_counts(tokens).items():
            images = frequency(ngram)
            weight = count * (log_images if images is None else log_images - math.log(images))
            weights[ngram] = weight
            squares[len(ngram) - 1] += weight * weight
        return _Vector(weights, tuple(map(math.sqrt, squares)), max(0, len(tokens) - 1))


def _similarity(caption: _Vector, reference: _Vector) -> float:
    """Clipped cosine, summed over the orders of n-grams, times the penalty on the difference in length."""
    products = [0.0] * ORDERS
    weight_in_reference = reference.weights.get
    for ngram, weight in caption.weights.items():
        reference_weight = weight_in_reference(ngram)
        if reference_weight is not None:
            products[len(ngram) - 1] += min(weight, reference_weight) * reference_weight
    total = 0.0
    for product, norm, reference_norm in zip(products, caption.norms, reference.norms, strict=True):
        if norm and reference_norm:
            total += product / (norm * reference_norm)
    return total * math.exp(-((caption.length - reference.length) ** 2) / (2 * SIGMA**2))
