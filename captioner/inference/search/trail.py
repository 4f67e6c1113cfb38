"""Trail: what every step of a search told, so that a hypothesis' maps are gathered only once it is chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from captioner.inference.backend import Step
from captioner.inference.search.hypothesis import Hypothesis, normalized


@dataclass(frozen=True)
class _Stage:
    rows: NDArray[np.int64]  # (images,): the row of each image in this stage's arrays
    alpha: NDArray[np.float32]  # (B, K, L): of the hypotheses before the choice
    gate: NDArray[np.float32]  # (B, K)
    cell: NDArray[np.int64] | None  # (B, K)
    parents: NDArray[np.int64]  # (B, K'): which of them each chosen one goes on from
    words: NDArray[np.int64]  # (B, K')
    log_probabilities: NDArray[np.float32]  # (B, K')


@dataclass(frozen=True)
class Leaf:
    """A hypothesis that is over: the slot it stood in before step `time`, where it ended or was cut."""

    image: int
    slot: int
    time: int  # the number of its words
    score: float
    end: float | None  # log-probability of the end token; None where the sentence was cut


@dataclass
class Trail:
    """The chosen words of all steps, with back pointers."""

    images: int
    power: float
    stages: list[_Stage] = field(default_factory=list)

    def add(
        self,
        images: NDArray[np.int64],  # (B,): which image each row is
        step: Step,
        parents: NDArray[np.int64],
        words: NDArray[np.int64],
        log_probabilities: NDArray[np.float32],
    ) -> None:
        rows = np.full(self.images, -1, np.int64)
        rows[images] = np.arange(len(images))
        self.stages.append(_Stage(rows, step.alpha, step.gate, step.cell, parents, words, log_probabilities))

    def leaf(self, image: int, slot: int, time: int, total: float, end: float | None) -> Leaf:
        """The hypothesis in `slot` before step `time`, of `total` log-probability, ended there or cut."""
        length = time + (end is not None)
        return Leaf(image, slot, time, normalized(total + (end or 0.0), length, self.power), end)

    def words(self, leaf: Leaf) -> tuple[int, ...]:
        return tuple(int(stage.words[row, slot]) for stage, row, slot, _ in self._way(leaf))

    def hypothesis(self, leaf: Leaf) -> Hypothesis:
        """Everything that was told along the way to a leaf."""
        way = self._way(leaf)
        told = [(stage, row, parent) for stage, row, _, parent in way]
        log_probabilities = [stage.log_probabilities[row, slot] for stage, row, slot, _ in way]
        if leaf.end is not None:
            last = self.stages[leaf.time]
            told.append((last, int(last.rows[leaf.image]), leaf.slot))
            log_probabilities.append(np.float32(leaf.end))
        alphas = [stage.alpha[row, slot] for stage, row, slot in told]
        cells = [stage.cell[row, slot] for stage, row, slot in told if stage.cell is not None]
        return Hypothesis(
            words=tuple(int(stage.words[row, slot]) for stage, row, slot, _ in way),
            ended=leaf.end is not None,
            score=leaf.score,
            log_probabilities=np.array(log_probabilities, np.float32),
            alphas=np.stack(alphas) if alphas else np.zeros((0, self.stages[0].alpha.shape[2]), np.float32),
            gates=np.array([stage.gate[row, slot] for stage, row, slot in told], np.float32),
            cells=np.array(cells, np.int64) if cells else None,
        )

    def _way(self, leaf: Leaf) -> list[tuple[_Stage, int, int, int]]:
        """Stage, row, slot after and slot before of each word, first word first."""
        way, slot = [], leaf.slot
        for stage in reversed(self.stages[: leaf.time]):
            row = int(stage.rows[leaf.image])
            parent = int(stage.parents[row, slot])
            way.append((stage, row, slot, parent))
            slot = parent
        way.reverse()
        return way
