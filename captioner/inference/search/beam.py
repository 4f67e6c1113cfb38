"""Beam search over (B, K): B images, K hypotheses each; with beam 1, greedy search.

An end token competes for the slots of the beam like any word. A hypothesis that ends keeps its slot, and the live
ones share the others, so the beam narrows as captions end. The search of an image is over if no hypothesis is live, or
if the best live one cannot outrank the n-th best finished one even if all its further words were certain:
log-probabilities only fall, so its score stays below sum / (maximum length) ** power.

With required words, there is one beam per number of satisfied constraints. A hypothesis with a rare required word is
then compared only with others that satisfy as many, and not with more likely ones that satisfy none. No slot is given
up in this case, because captions that end early often took a required word at any price.

Diverse search divides the beam into groups that choose one after another. Each group pays for the words that earlier
groups have just taken (Vijayakumar et al. 2016, with Hamming diversity). The final scores do not include this penalty.
"""

from __future__ import annotations

from bisect import insort

import numpy as np
from numpy.typing import NDArray

from captioner.errors import CaptionerError
from captioner.inference.backend import Annotations, Backend, Step
from captioner.inference.search.constraints import Constraints
from captioner.inference.search.hypothesis import Hypothesis
from captioner.inference.search.trail import Leaf, Trail
from captioner.options import SearchOptions

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOSTLY_LIVE = 0.75  # finished images are removed from the batch once the share of live ones is no more than this
MOST_PASSES = 64  # beams up to this width are found by passes of argmax
NONE = -np.inf  # the score of an empty slot


def beam_search(
    backend: Backend, annotations: Annotations, options: SearchOptions, constraints: Constraints
) -> list[list[Hypothesis]]:
    """The n best captions of each image."""
    images = len(annotations.values)
    beam = _Beam(images, options, constraints)
    state = backend.begin(annotations, options.hard_attention, options.seed)
    words = np.full((images, 1), backend.vocabulary.start, np.int64)
    for time in range(options.max_length + 1):
        step = backend.step(state, words)
        state = step.state
        parents, words = beam.advance(step, time)
        rows = beam.drop_finished()
        if not len(beam.images):
            break
        if rows is not None:
            state, parents, words = backend.select_images(state, rows), parents[rows], words[rows]
        state = backend.select_hypotheses(state, parents)
    return beam.results()


class _Beam:
    """The hypotheses of all images whose search is not over."""

    def __init__(self, images: int, options: SearchOptions, constraints: Constraints) -> None:
        self.options, self.constraints = options, constraints
        self.trail = Trail(images, options.length_power)
        self.finished: list[list[Leaf]] = [[] for _ in range(images)]  # best first
        self.cut: list[list[Leaf]] = [[] for _ in range(images)]
        self.images: Numbers = np.arange(images)  # (B,): the image of each row
        self.group: Numbers = np.zeros(1, np.int64)  # (K,): the group of each slot
        self.sums = np.zeros((images, 1))  # (B, K): log-probability less penalties; NONE: an empty slot
        self.words = np.zeros((images, 1, 0), np.int64)  # (B, K, t)
        self.met = np.zeros((images, 1, len(constraints.required)), np.bool_)  # (B, K, C)
        self.free = np.full((images, options.groups), options.beam // options.groups)  # (B, groups): slots not given up

    def advance(self, step: Step, time: int) -> tuple[Numbers, Numbers]:
        """Choose the next hypotheses of every image: their parents and their words, (B, K')."""
        scores = step.log_probabilities
        if not scores.flags.writeable:
            scores = scores.copy()
        self.constraints.mask(scores, self.words, self.met)
        parents, words, group, taken = self._choose(scores, time)
        rows = np.arange(len(self.images))[:, None]
        step_scores = scores[rows, parents, words]
        totals = np.where(taken, self.sums[rows, parents] + step_scores, NONE)

        ended = (totals > NONE) & (words == self.constraints.end)
        for row, slot in np.argwhere(ended):
            self._finish(int(row), int(parents[row, slot]), time, float(step_scores[row, slot]))
        if not len(self.constraints.required):
            for g in range(self.options.groups):
                self.free[:, g] -= ended[:, group == g].sum(axis=1)
        totals[ended] = NONE
        over = (totals == NONE).all(axis=1) | (time == self.options.max_length)
        for row in np.flatnonzero(over & (self.sums > NONE).any(axis=1)):
            self._cut(int(row), time, parents[row, ended[row]].tolist())
        totals[over | self._decided(totals)] = NONE

        order, self.group = _live_first(totals > NONE, group)
        parents, words = parents[rows, order], words[rows, order]
        previous = self.words[rows, parents]
        penalties = self.constraints.penalties(previous, words)
        self.trail.add(self.images, step, parents, words, step_scores[rows, order] + penalties)
        self.sums = totals[rows, order]
        self.words = np.concatenate([previous, words[:, :, None]], axis=2)
        self.met = self.constraints.meet(self.met[rows, parents], words)
        return parents, words

    def drop_finished(self) -> Numbers | None:
        """Remove finished images. Returns the rows that stay; None if all do."""
        live: Flags = np.any(self.sums > NONE, axis=1)
        if live.sum() > MOSTLY_LIVE * len(live):
            return None
        rows = np.flatnonzero(live)
        self.images, self.sums, self.words = self.images[rows], self.sums[rows], self.words[rows]
        self.met, self.free = self.met[rows], self.free[rows]
        return rows

    def results(self) -> list[list[Hypothesis]]:
        """Finished captions, best first. Those that the length limit cut fill up where there are too few."""
        leaves = [finished + cut for finished, cut in zip(self.finished, self.cut, strict=True)]
        return [[self.trail.hypothesis(leaf) for leaf in of_image[: self.options.n_best]] for of_image in leaves]

    def _choose(self, scores: Floats, time: int) -> tuple[Numbers, Numbers, Numbers, Flags]:
        """Parents and words (B, K'), the groups of the new slots (K',), and which slots are in use."""
        options = self.options
        width = options.beam // options.groups
        parents: list[Numbers] = []
        words: list[Numbers] = []
        taken: list[Flags] = []
        groups: list[Numbers] = []
        for g in range(options.groups):
            # Before the first word there is one hypothesis. Every group starts from it.
            slots = np.flatnonzero(self.group == g) if time else np.zeros(1, np.int64)
            if not len(slots):
                continue
            group_scores = scores if options.groups == 1 else scores[:, slots]  # (B, n, V)
            for earlier_words, in_use in zip(words, taken, strict=True):
                for slot in range(earlier_words.shape[1]):
                    penalty = options.diversity * in_use[:, slot, None]
                    group_scores[np.arange(len(group_scores)), :, earlier_words[:, slot]] -= penalty.astype(np.float32)
            best = [
                _best(candidate_scores, self.sums[:, slots], width)
                for candidate_scores in self._scores_by_met_constraints(group_scores, slots, time)
            ]
            if best:
                ranks = np.concatenate([np.arange(values.shape[1]) for *_, values in best])
                values = np.concatenate([values for *_, values in best], axis=1)
                parents.append(slots[np.concatenate([parent for parent, *_ in best], axis=1)])
                words.append(np.concatenate([word for _, word, _ in best], axis=1))
                taken.append((values > NONE) & (ranks < self.free[:, g, None]))
                groups.append(np.full(len(ranks), g))
        return (
            np.concatenate(parents, axis=1),
            np.concatenate(words, axis=1),
            np.concatenate(groups),
            np.concatenate(taken, axis=1),
        )

    def _scores_by_met_constraints(self, group_scores: Floats, slots: Numbers, time: int) -> list[Floats]:
        """One copy of the scores per number of constraints that the new word satisfies, while the rest are in reach."""
        count = len(self.constraints.required)
        if not count:
            return [group_scores]
        wanted = self.constraints.wanted
        before = self.met[:, slots].sum(axis=2)[:, :, None]  # (B, n, 1)
        after = before + self.constraints.gain(self.met[:, slots])  # (B, n, m)
        candidates = []
        for met in range(count + 1):
            if met == count or self.constraints.words_needed(met) < self.options.max_length - time:
                candidate_scores = np.where(before == met, group_scores, np.float32(NONE))
                candidate_scores[:, :, wanted] = np.where(after == met, group_scores[:, :, wanted], np.float32(NONE))
                candidates.append(candidate_scores)
        return candidates

    def _finish(self, row: int, slot: int, time: int, end: float) -> None:
        leaf = self.trail.leaf(int(self.images[row]), slot, time, float(self.sums[row, slot]), end)
        leaves = self.finished[leaf.image]
        if self.options.groups > 1:  # two groups may find the same caption
            words = self.trail.words(leaf)
            if any(self.trail.words(other) == words for other in leaves):
                return
        insort(leaves, leaf, key=lambda leaf: -leaf.score)

    def _cut(self, row: int, time: int, ended: list[int]) -> None:
        """Keep hypotheses that were live before this step as captions without an end, if all requirements are met."""
        image = int(self.images[row])
        for slot in np.flatnonzero((self.sums[row] > NONE) & self.met[row].all(axis=1)):
            if slot not in ended:
                leaf = self.trail.leaf(image, int(slot), time, float(self.sums[row, slot]), None)
                insort(self.cut[image], leaf, key=lambda leaf: -leaf.score)

    def _decided(self, totals: NDArray[np.float64]) -> Flags:
        """(B,): images for which no live hypothesis can reach the n best any more."""
        n = self.options.n_best
        worst = [self.finished[image][n - 1].score if len(self.finished[image]) >= n else NONE for image in self.images]
        bound = totals.max(axis=1, initial=NONE) / (self.options.max_length + 1) ** self.options.length_power
        decided: Flags = bound <= np.array(worst)
        return decided


def _best(scores: Floats, sums: NDArray[np.float64], width: int) -> tuple[Numbers, Numbers, NDArray[np.float64]]:
    """The best continuations of n hypotheses, best first: parents, words, values (B, up to width)."""
    images, n, size = scores.shape
    k = min(width, size)
    flat = scores.reshape(images * n, size)
    index = largest_columns(flat, k)
    values = flat[np.arange(images * n)[:, None], index].reshape(images, n, k) + sums[:, :, None]
    if np.isnan(values).any():
        raise CaptionerError("the model gave a log-probability that is not a number: its weights are damaged")
    values = values.reshape(images, n * k)
    order = np.argsort(-values, axis=1, kind="stable")[:, :width]
    words = index.reshape(images, n * k)
    return order // k, np.take_along_axis(words, order, axis=1), np.take_along_axis(values, order, axis=1)


def largest_columns(table: Floats, k: int) -> Numbers:
    """Columns of the k largest values of each row, largest first. Of equal values the first column comes first."""
    rows = np.arange(len(table))
    if k > MOST_PASSES:
        largest = np.sort(np.argpartition(-table, k - 1, axis=1)[:, :k], axis=1)
        order = np.argsort(-np.take_along_axis(table, largest, axis=1), axis=1, kind="stable")
        return np.take_along_axis(largest, order, axis=1)
    # A pass of argmax takes about a hundredth of the time of a partial sort of a whole vocabulary.
    columns = np.empty((len(table), k), np.int64)
    values = np.empty((len(table), k), table.dtype)
    for i in range(k):
        columns[:, i] = table.argmax(axis=1)
        values[:, i] = table[rows, columns[:, i]]
        table[rows, columns[:, i]] = NONE
    for i in reversed(range(k)):
        table[rows, columns[:, i]] = values[:, i]
    return columns


def _live_first(live: Flags, group: Numbers) -> tuple[Numbers, Numbers]:
    """An order of the slots, live ones first, (B, K'), and their groups. Slots that no image needs are left out."""
    order, groups = [], []
    for g in sorted(set(group.tolist())):  # np.unique would import numpy.ma
        slots = np.flatnonzero(group == g)
        needed = int(live[:, slots].sum(axis=1).max(initial=0))
        order.append(slots[np.argsort(~live[:, slots], axis=1, kind="stable")[:, :needed]])
        groups.append(np.full(needed, g))
    return np.concatenate(order, axis=1), np.concatenate(groups)
