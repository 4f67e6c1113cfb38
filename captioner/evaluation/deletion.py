"""Deletion: how much the probability of a word falls when its most attended cells are blanked in the picture.

For each content word of a caption, the most attended tenth of the cells is painted with the mean color of the picture.
The picture is encoded again, and the probability of the word after the same words is compared. As a control, the same
pattern of cells is moved to a random position. Blanking any part lowers the probability: only the difference between
the two shows that the word depends on the attended cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption
from captioner.evaluation.attention_maps import Map, attention_map
from captioner.evidence.blurring import blank
from captioner.images.pixels import Pixels
from captioner.inference.backend import Annotations, Backend
from captioner.inference.search import SearchOptions, force
from captioner.metrics.means import Mean, mean_of
from captioner.text.nouns import is_content_word

SHARE = 0.1  # share of the cells that are blanked
_BATCH = 16  # pictures per encoder call


@dataclass(frozen=True)
class Deletion:
    """Means are over words, intervals over images."""

    images: int
    words: int
    share: float  # share of the picture that is blanked
    before: Mean  # probability with the whole picture
    attended: Mean  # decrease with the attended cells blanked
    elsewhere: Mean  # decrease with the same pattern at a random position
    advantage: Mean  # attended - elsewhere


def deletion(
    backend: Backend,
    cases: Sequence[tuple[Pixels, Caption]],
    options: SearchOptions,
    *,
    seed: int = 0,
) -> Deletion | None:
    """`cases` are pixels and the caption of the model for them. None if the captions have no content words."""
    decreases: list[list[tuple[float, float, float]]] = []  # per image, per word: before, attended, elsewhere
    cells = 0
    for number, (pixels, caption) in enumerate(cases):
        random = np.random.default_rng((seed, number))
        content_words = [i for i, word in enumerate(caption.words) if is_content_word(word.text)]
        if not content_words:
            continue
        numbers = [backend.vocabulary.index[word.text] for word in caption.words]
        pictures: list[Pixels] = [pixels]
        prefixes = [numbers]
        for i in content_words:
            cover = most_attended(attention_map(caption.words[i]))
            cells = int(cover.sum())
            pictures += [blank(pixels, cover), blank(pixels, moved(cover, random))]
            prefixes += [numbers[: i + 1]] * 2
        before, *after = _log_probabilities(backend, pictures, prefixes, options)
        decreases.append(
            [
                (p := float(np.exp(before[i])), p - float(np.exp(there[i])), p - float(np.exp(away[i])))
                for i, there, away in zip(content_words, after[::2], after[1::2], strict=True)
            ]
        )
    if not decreases:
        return None
    columns = [[[word[k] for word in words] for words in decreases] for k in range(3)]
    columns.append([[there - away for _, there, away in words] for words in decreases])
    before_, attended, elsewhere, advantage = (mean_of(column) for column in columns)
    assert before_ and attended and elsewhere and advantage
    share = cells / (backend.rows * backend.cols)
    return Deletion(len(decreases), sum(map(len, decreases)), share, before_, attended, elsewhere, advantage)


def most_attended(attention: Map) -> NDArray[np.bool_]:
    """The tenth of the cells with the most attention, at least one cell."""
    count = max(1, round(SHARE * attention.size))
    cover = np.zeros(attention.size, np.bool_)
    cover[np.argsort(-attention, axis=None, kind="stable")[:count]] = True
    return cover.reshape(attention.shape)


def moved(cover: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.bool_]:
    """The same pattern shifted by a random step other than zero; it wraps around the borders."""
    rows, cols = cover.shape
    if rows * cols == 1:
        return cover
    down, across = divmod(int(random.integers(1, rows * cols)), cols)
    return np.roll(cover, (down, across), (0, 1))


def _log_probabilities(
    backend: Backend, pictures: list[Pixels], captions: list[list[int]], options: SearchOptions
) -> Iterator[NDArray[np.float32]]:
    """Log-probabilities of the words of each caption, one caption per picture."""
    for start in range(0, len(pictures), _BATCH):
        batch = slice(start, start + _BATCH)
        annotations: Annotations = backend.encode(np.stack(pictures[batch]))
        for (hypothesis,) in force(backend, annotations, [[words] for words in captions[batch]], options):
            yield hypothesis.log_probabilities
