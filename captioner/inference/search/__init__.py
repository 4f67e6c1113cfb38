"""Search, written once over the Backend interface: greedy, beam, diverse, sampled, constrained; and forced.

numpy only. `search` finds captions; `force` follows given ones, for their likelihood and attention.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from captioner.inference.backend import Annotations, Backend
from captioner.inference.search.constraints import Constraints
from captioner.inference.search.hypothesis import Hypothesis, caption_of, normalized
from captioner.options import SearchOptions

__all__ = ["Hypothesis", "SearchOptions", "caption_of", "force", "search"]


def search(backend: Backend, annotations: Annotations, options: SearchOptions | None = None) -> list[list[Hypothesis]]:
    """The n best captions of each image, best first.

    A list is empty only where no sentence meets all constraints at once.
    """
    options = options or SearchOptions()
    constraints = Constraints.of(options, backend.vocabulary)
    if not len(annotations.values):
        return []
    if options.sample:
        from captioner.inference.search.word_sampling import draw

        return draw(backend, annotations, options, constraints)
    from captioner.inference.search.beam import beam_search

    return beam_search(backend, annotations, options, constraints)


def force(
    backend: Backend,
    annotations: Annotations,
    captions: Sequence[Sequence[Sequence[int]]],
    options: SearchOptions | None = None,
) -> list[list[Hypothesis]]:
    """What the model makes of given captions: word numbers, without start and end, some for each image.

    An unknown word is read as `<unk>` and costs its probability. Of the options, only the length
    normalization, `hard_attention` and the seed count.
    """
    options = options or SearchOptions()
    images = len(annotations.values)
    if len(captions) != images:
        raise ValueError(f"captions of {len(captions)} images for {images} images")
    width = max((len(some) for some in captions), default=0)
    if not images or not width:
        return [[] for _ in range(images)]
    vocabulary = backend.vocabulary
    longest = max(len(words) for some in captions for words in some)
    targets = np.full((images, width, longest + 1), vocabulary.end, np.int64)
    for i, some in enumerate(captions):
        for k, words in enumerate(some):
            targets[i, k, : len(words)] = words
    state = backend.begin(annotations, options.hard_attention, options.seed)
    state = backend.select(state, np.zeros((images, width), np.int64))
    last = np.full((images, width), vocabulary.start, np.int64)
    log_probabilities, alphas, gates, cells = [], [], [], []
    for time in range(longest + 1):
        step = backend.step(state, last)
        state, last = step.state, targets[:, :, time]
        log_probabilities.append(np.take_along_axis(step.log_probabilities, last[:, :, None], axis=2)[:, :, 0])
        alphas.append(step.alpha)
        gates.append(step.gate)
        if step.cell is not None:
            cells.append(step.cell)
    table, maps, gate = np.stack(log_probabilities, 2), np.stack(alphas, 2), np.stack(gates, 2)
    cell = np.stack(cells, 2) if cells else None

    def hypothesis(i: int, k: int) -> Hypothesis:
        n = len(captions[i][k]) + 1
        return Hypothesis(
            words=tuple(int(word) for word in captions[i][k]),
            ended=True,
            score=normalized(float(table[i, k, :n].sum(dtype=np.float64)), n, options.length_power),
            log_probabilities=table[i, k, :n],
            alphas=maps[i, k, :n],
            gates=gate[i, k, :n],
            cells=None if cell is None else cell[i, k, :n],
        )

    return [[hypothesis(i, k) for k in range(len(some))] for i, some in enumerate(captions)]
