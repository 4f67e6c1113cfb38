"""Search over the Backend interface, in numpy: greedy, beam, diverse, sampled and constrained search; forced decoding.

`search` finds captions. `force` computes the probabilities and attention maps of given captions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from captioner.inference.backend import Annotations, Backend
from captioner.inference.search.beam import beam_search, largest_columns
from captioner.inference.search.constraints import Constraints
from captioner.inference.search.hypothesis import Hypothesis, caption_of, normalized
from captioner.inference.search.word_sampling import sample_captions
from captioner.options import SearchOptions

__all__ = ["Hypothesis", "SearchOptions", "caption_of", "force", "search"]


def search(backend: Backend, annotations: Annotations, options: SearchOptions | None = None) -> list[list[Hypothesis]]:
    """The n best captions of each image, best first.

    A list is empty only if no caption satisfies all constraints.
    """
    options = options or SearchOptions()
    constraints = Constraints.of(options, backend.vocabulary)
    if not len(annotations.values):
        return []
    if backend.one_by_one and len(annotations.values) > 1:
        return [found for one in annotations.singly() for found in search(backend, one, options)]
    if options.sample:
        return sample_captions(backend, annotations, options, constraints)
    return beam_search(backend, annotations, options, constraints)


def force(
    backend: Backend,
    annotations: Annotations,
    captions: Sequence[Sequence[Sequence[int]]],
    options: SearchOptions | None = None,
    *,
    top_words: int = 0,
) -> list[list[Hypothesis]]:
    """Given captions with the model's probabilities and maps: a list of captions per image.

    A caption is its word numbers, without start and end. An unknown word is read as `<unk>`, with the probability of
    `<unk>`. Only `length_power`, `hard_attention` and `seed` of the options are used. With `top_words`, each
    position has that many likeliest words.
    """
    options = options or SearchOptions()
    images = len(annotations.values)
    if len(captions) != images:
        raise ValueError(f"{len(captions)} lists of captions for {images} images")
    if backend.one_by_one and images > 1:
        pairs = zip(annotations.singly(), captions, strict=True)
        return [found for one, own in pairs for found in force(backend, one, [own], options, top_words=top_words)]
    width = max((len(of_image) for of_image in captions), default=0)
    if not images or not width:
        return [[] for _ in range(images)]
    vocabulary = backend.vocabulary
    longest = max(len(words) for of_image in captions for words in of_image)
    targets = np.full((images, width, longest + 1), vocabulary.end, np.int64)
    for i, of_image in enumerate(captions):
        for k, words in enumerate(of_image):
            targets[i, k, : len(words)] = words
    state = backend.begin(annotations, options.hard_attention, options.seed)
    state = backend.select_hypotheses(state, np.zeros((images, width), np.int64))
    last = np.full((images, width), vocabulary.start, np.int64)
    log_probabilities, alphas, gates, cells = [], [], [], []
    likeliest: list[NDArray[np.int64]] = []  # (images, width, top_words) per step
    chances: list[NDArray[np.float32]] = []
    for time in range(longest + 1):
        step = backend.step(state, last)
        if top_words:
            table = step.log_probabilities.reshape(images * width, -1)
            if not table.flags.writeable:
                table = table.copy()
            likeliest.append(largest_columns(table, min(top_words, table.shape[1])).reshape(images, width, -1))
            chances.append(np.exp(np.take_along_axis(step.log_probabilities, likeliest[-1], axis=2)))
        state, last = step.state, targets[:, :, time]
        log_probabilities.append(np.take_along_axis(step.log_probabilities, last[:, :, None], axis=2)[:, :, 0])
        alphas.append(step.alpha)
        gates.append(step.gate)
        if step.cell is not None:
            cells.append(step.cell)
    table, maps, gate_table = np.stack(log_probabilities, 2), np.stack(alphas, 2), np.stack(gates, 2)
    cell_table = np.stack(cells, 2) if cells else None

    def hypothesis(i: int, k: int) -> Hypothesis:
        n = len(captions[i][k]) + 1
        return Hypothesis(
            words=tuple(int(word) for word in captions[i][k]),
            ended=True,
            score=normalized(float(table[i, k, :n].sum(dtype=np.float64)), n, options.length_power),
            log_probabilities=table[i, k, :n],
            alphas=maps[i, k, :n],
            gates=gate_table[i, k, :n],
            cells=None if cell_table is None else cell_table[i, k, :n],
            likeliest=tuple(
                tuple(zip(words[i, k].tolist(), shares[i, k].tolist(), strict=True))
                for words, shares in zip(likeliest[:n], chances[:n], strict=True)
            ),
        )

    return [[hypothesis(i, k) for k in range(len(of_image))] for i, of_image in enumerate(captions)]
