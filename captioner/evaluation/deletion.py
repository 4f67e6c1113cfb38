"""Deletion: how much a word's probability falls when the places it looked at are blanked in the picture.

For each content word of a caption, the most attended tenth of the cells is painted over with the picture's mean
colour, the picture is encoded again, and the word's probability after the same words is compared with what it was.
Beside it stands the same with the same pattern of cells moved to another place of the picture, chosen at random:
blanking anything hurts, and only the difference speaks for attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption
from captioner.evaluation.attention_maps import Map, attention_map
from captioner.evaluation.nouns import FUNCTION_WORDS
from captioner.images.pixels import Pixels
from captioner.inference.backend import Annotations, Backend
from captioner.inference.search import SearchOptions, force
from captioner.metrics.means import Mean, mean_of

SHARE = 0.1  # of the cells that are blanked
_BATCH = 16  # pictures encoded at a time


@dataclass(frozen=True)
class Deletion:
    """Probabilities are means over words, intervals over images."""

    images: int
    words: int
    share: float  # of the picture that is blanked
    before: Mean
    attended: Mean  # how far the probability falls: the places looked at blanked
    elsewhere: Mean  # the same pattern at a random place
    advantage: Mean  # the first less the second


def deletion(
    backend: Backend,
    cases: Sequence[tuple[Pixels, Caption]],
    options: SearchOptions,
    *,
    seed: int = 0,
) -> Deletion | None:
    """`cases` are the model's pixels and the caption it found for them; None where no word is a content word."""
    falls: list[list[tuple[float, float, float]]] = []  # of each word of each image: before, attended, elsewhere
    cells = 0
    for number, (pixels, caption) in enumerate(cases):
        random = np.random.default_rng((seed, number))
        chosen = [i for i, word in enumerate(caption.words) if _speaks(word.text)]
        if not chosen:
            continue
        numbers = [backend.vocabulary.index[word.text] for word in caption.words]
        pictures: list[Pixels] = [pixels]
        prefixes = [numbers]
        for i in chosen:
            cover = most_attended(attention_map(caption.words[i]))
            cells = int(cover.sum())
            pictures += [blank(pixels, cover), blank(pixels, moved(cover, random))]
            prefixes += [numbers[: i + 1]] * 2
        before, *after = _log_probabilities(backend, pictures, prefixes, options)
        falls.append(
            [
                (p := float(np.exp(before[i])), p - float(np.exp(there[i])), p - float(np.exp(away[i])))
                for i, there, away in zip(chosen, after[::2], after[1::2], strict=True)
            ]
        )
    if not falls:
        return None
    columns = [[[word[k] for word in words] for words in falls] for k in range(3)]
    columns.append([[there - away for _, there, away in words] for words in falls])
    before_, attended, elsewhere, advantage = (mean_of(column) for column in columns)
    assert before_ and attended and elsewhere and advantage
    share = cells / (backend.rows * backend.cols)
    return Deletion(len(falls), sum(map(len, falls)), share, before_, attended, elsewhere, advantage)


def most_attended(looked: Map) -> NDArray[np.bool_]:
    """The tenth of the cells with most attention, at least one."""
    count = max(1, round(SHARE * looked.size))
    cover = np.zeros(looked.size, np.bool_)
    cover[np.argsort(-looked, axis=None, kind="stable")[:count]] = True
    return cover.reshape(looked.shape)


def moved(cover: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.bool_]:
    """The same pattern elsewhere: rolled over the borders, by any step but none."""
    rows, cols = cover.shape
    if rows * cols == 1:
        return cover
    down, across = divmod(int(random.integers(1, rows * cols)), cols)
    return np.roll(cover, (down, across), (0, 1))


def blank(pixels: Pixels, cover: NDArray[np.bool_]) -> Pixels:
    """The picture with some cells painted in its mean colour."""
    height, width, _ = pixels.shape
    rows, cols = cover.shape
    row = (np.arange(height) * rows) // height
    col = (np.arange(width) * cols) // width
    painted: Pixels = pixels.copy()
    painted[cover[row[:, None], col[None, :]]] = np.rint(pixels.reshape(-1, 3).mean(0)).astype(np.uint8)
    return painted


def _speaks(text: str) -> bool:
    return text not in FUNCTION_WORDS and not text.startswith("<")


def _log_probabilities(
    backend: Backend, pictures: list[Pixels], captions: list[list[int]], options: SearchOptions
) -> Iterator[NDArray[np.float32]]:
    """Of the words of a caption for each picture."""
    for start in range(0, len(pictures), _BATCH):
        batch = slice(start, start + _BATCH)
        annotations: Annotations = backend.encode(np.stack(pictures[batch]))
        for (found,) in force(backend, annotations, [[words] for words in captions[batch]], options):
            yield found.log_probabilities
