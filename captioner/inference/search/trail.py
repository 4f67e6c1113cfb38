"""Trail: the outputs of all steps of a search. The maps of a hypothesis are collected only when it is returned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from captioner.inference.backend import Step
from captioner.inference.search.hypothesis import Hypothesis, normalized


@dataclass(frozen=True)
class _Stage:
    rows: NDArray[np.int64]  # (images,): the row of each image in the arrays of this stage
    alpha: NDArray[np.float32]  # (B, K, L): of the hypotheses before this step
    gate: NDArray[np.float32]  # (B, K)
    cell: NDArray[np.int64] | None  # (B, K)
    parents: NDArray[np.int64]  # (B, K'): the hypothesis that each new one continues
    words: NDArray[np.int64]  # (B, K')
    log_probabilities: NDArray[np.float32]  # (B, K')


@dataclass(frozen=True)
class Leaf:
    """A finished hypothesis: its slot before step `time`, at which it ended or was cut."""

    image: int
    slot: int
    time: int  # number of its words
    score: float
    end: float | None  # log-probability of the end token; None if the caption was cut


@dataclass
class Trail:
    """The words of all steps, with back pointers."""

    images: int
    power: float
    stages: list[_Stage] = field(default_factory=list)

    def add(
        self,
        images: NDArray[np.int64],  # (B,): the image of each row
        step: Step,
        parents: NDArray[np.int64],
        words: NDArray[np.int64],
        log_probabilities: NDArray[np.float32],
    ) -> None:
        rows = np.full(self.images, -1, np.int64)
        rows[images] = np.arange(len(images))
        self.stages.append(_Stage(rows, step.alpha, step.gate, step.cell, parents, words, log_probabilities))

    def leaf(self, image: int, slot: int, time: int, total: float, end: float | None) -> Leaf:
        """The hypothesis in `slot` before step `time`, with log-probability `total`. It ended or was cut."""
        length = time + (end is not None)
        return Leaf(image, slot, time, normalized(total + (end or 0.0), length, self.power), end)

    def words(self, leaf: Leaf) -> tuple[int, ...]:
        return tuple(int(stage.words[row, slot]) for stage, row, slot, _ in self._path(leaf))

    def hypothesis(self, leaf: Leaf) -> Hypothesis:
        """The words of a leaf with the outputs of all its steps."""
        path = self._path(leaf)
        steps = [(stage, row, parent) for stage, row, _, parent in path]
        log_probabilities = [stage.log_probabilities[row, slot] for stage, row, slot, _ in path]
        if leaf.end is not None:
            last = self.stages[leaf.time]
            steps.append((last, int(last.rows[leaf.image]), leaf.slot))
            log_probabilities.append(np.float32(leaf.end))
        alphas = [stage.alpha[row, slot] for stage, row, slot in steps]
        cells = [stage.cell[row, slot] for stage, row, slot in steps if stage.cell is not None]
        return Hypothesis(
            words=tuple(int(stage.words[row, slot]) for stage, row, slot, _ in path),
            ended=leaf.end is not None,
            score=leaf.score,
            log_probabilities=np.array(log_probabilities, np.float32),
            alphas=np.stack(alphas) if alphas else np.zeros((0, self.stages[0].alpha.shape[2]), np.float32),
            gates=np.array([stage.gate[row, slot] for stage, row, slot in steps], np.float32),
            cells=np.array(cells, np.int64) if cells else None,
        )

    def _path(self, leaf: Leaf) -> list[tuple[_Stage, int, int, int]]:
        """Stage, row, slot after and slot before of each word, first word first."""
        path, slot = [], leaf.slot
        for stage in reversed(self.stages[: leaf.time]):
            row = int(stage.rows[leaf.image])
            parent = int(stage.parents[row, slot])
            path.append((stage, row, slot, parent))
            slot = parent
        path.reverse()
        return path
