"""A backend for tests of search: a table gives the next word's probabilities for an image and the words so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from zlib import crc32

import numpy as np

from captioner.inference.backend import Annotations, State, Step
from captioner.options import BackendLabel, HardAttention
from captioner.text.vocabulary import SPECIAL, Vocabulary

CELLS = 4
Table = Callable[[int, tuple[str, ...]], Mapping[str, float]]


@dataclass
class TableBackend:
    """A Backend whose state is the words so far. `computed` lists the size of every step."""

    words: Sequence[str]
    table: Table
    rows: int = 2
    cols: int = 2
    image_size: int = 8
    hard: bool = False
    recurring: frozenset[str] = frozenset()
    one_by_one: bool = False
    name: BackendLabel = "onnx"
    computed: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.vocabulary = Vocabulary(SPECIAL + tuple(self.words), self.recurring)
        self._steps: dict[tuple[int, tuple[str, ...]], tuple[np.ndarray, np.ndarray, float]] = {}

    def encode(self, pixels, *, keys=True):
        return images(*pixels[:, 0, 0, 0])

    def begin(self, annotations: Annotations, hard_attention: HardAttention | None = None, seed: int = 0) -> State:
        number = annotations.values[:, 0, 0].astype(np.int64)
        return State({"image": number}, {"words": np.zeros((len(number), 1, 0), np.int64)})

    def step(self, state: State, words) -> Step:
        images, K = words.shape
        self.computed.append((images, K))
        prefixes = np.concatenate([state.own["words"], words[:, :, None]], axis=2)
        logp = np.full((images, K, len(self.vocabulary)), -np.inf, np.float32)
        alpha = np.zeros((images, K, CELLS), np.float32)
        gate = np.zeros((images, K), np.float32)
        for b, k in product(range(images), range(K)):
            prefix = tuple(self.vocabulary.words[w] for w in prefixes[b, k, 1:])
            image = int(state.shared["image"][b])
            logp[b, k], alpha[b, k], gate[b, k] = self._row(image, prefix)
        cell = alpha.argmax(axis=2) if self.hard else None
        return Step(logp, State(state.shared, {"words": prefixes}), alpha, gate, cell)

    def _row(self, image: int, prefix: tuple[str, ...]):
        if (image, prefix) not in self._steps:
            logp = np.full(len(self.vocabulary), -np.inf, np.float32)
            for word, p in self.table(image, prefix).items():
                logp[self.vocabulary.index[word]] = np.log(p) if p else -np.inf
            self._steps[image, prefix] = (logp, *attention(image, prefix))
        return self._steps[image, prefix]

    def select_hypotheses(self, state: State, parents) -> State:
        rows = np.arange(len(parents))[:, None]
        return State(state.shared, {"words": state.own["words"][rows, parents]})

    def select_images(self, state: State, images) -> State:
        return State({"image": state.shared["image"][images]}, {"words": state.own["words"][images]})


def images(*numbers: int, keys=None) -> Annotations:
    values = np.zeros((len(numbers), CELLS, 1), np.float32)
    values[:, 0, 0] = numbers
    return Annotations(values, 2, 2, keys=keys)


def attention(image: int, prefix: tuple[str, ...]) -> tuple[np.ndarray, float]:
    """The attention map and the gate for the word after a prefix."""
    generator = np.random.default_rng(crc32(repr((image, prefix)).encode()))
    alpha = generator.random(CELLS) + 0.01
    return (alpha / alpha.sum()).astype(np.float32), float(np.float32(generator.random()))


def random_table(words: Sequence[str], seed: int = 0, sharp: float = 2.0) -> Table:
    """Different random probabilities for every image and prefix."""

    def table(image: int, prefix: tuple[str, ...]) -> dict[str, float]:
        generator = np.random.default_rng((seed, crc32(repr((image, prefix)).encode())))
        scores = np.exp(sharp * generator.standard_normal(len(words) + 1))
        return dict(zip([*words, "<end>"], scores / scores.sum(), strict=True))

    return table


def sentences(backend: TableBackend, image: int, longest: int) -> dict[tuple[str, ...], float]:
    """The log-probability of every sentence of at most `longest` words, by enumeration."""
    log_probabilities = {}
    for length in range(longest + 1):
        for words in product(backend.words, repeat=length):
            total = 0.0
            for at, word in enumerate([*words, "<end>"]):
                total += float(np.log(np.float32(backend.table(image, words[:at]).get(word, 0.0)) + 1e-300))
            log_probabilities[words] = total
    return log_probabilities


def text(backend: TableBackend, hypothesis) -> tuple[str, ...]:
    return tuple(backend.vocabulary.words[word] for word in hypothesis.words)
