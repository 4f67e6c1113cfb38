"""Does attention look at the thing it names? Figures about the maps of captions that the model found by itself.

entropy and movement   of the maps alone, with an alarm where they stand still
grounding              against boxes of objects: mass inside, and the pointing game
deletion               is in `captioner.evaluation.deletion`: it has to run the model again

The map of the end token is never counted. Where a hard model chose a place, that place is what it looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption
from captioner.data.caption_set import Box
from captioner.evaluation.attention_maps import Map, attention_map
from captioner.evaluation.nouns import mentions
from captioner.images.frame import Frame
from captioner.metrics.means import Mean, mean_of


@dataclass(frozen=True)
class GroundedNoun:
    """A noun of a caption that names a category with boxes in its picture."""

    image: int
    label: str
    looked: Map  # over the noun's words
    covered: Map  # share of each cell's area that is inside a box of the category
    hit: NDArray[np.bool_]  # cells whose centre is

    @property
    def mass(self) -> float:
        return float((self.looked * self.covered).sum())

    @property
    def points(self) -> float:
        """Whether the most attended cell is a hit; equal ones share."""
        best = self.looked >= self.looked.max() - 1e-12
        return float(self.hit[best].mean())


@dataclass(frozen=True)
class Comparison:
    """A figure beside what an even map and the maps of other images would get on the same boxes."""

    value: Mean
    even: float
    elsewhere: float | None  # None where only one image has such nouns


@dataclass(frozen=True)
class CategoryFigures:
    """The nouns of one category."""

    nouns: int
    mass: float
    area: float
    pointing: float


@dataclass(frozen=True)
class Grounding:
    """Nouns and the boxes they name; means are over nouns, intervals over images."""

    images: int  # with such a noun
    nouns: int
    absent: int  # nouns that name a category which has no box in the picture: not in the figures
    mass: Comparison
    pointing: Comparison
    labels: dict[str, CategoryFigures]  # most frequent first


def grounded_nouns(
    captions: Sequence[Caption], boxes: Sequence[Sequence[Box]], frames: Sequence[Frame]
) -> tuple[list[GroundedNoun], int]:
    """The nouns that name a category of boxes, and how many name one that has no box in their picture."""
    labels = {box.label for some in boxes for box in some}
    found: list[GroundedNoun] = []
    absent = 0
    for image, (caption, some, frame) in enumerate(zip(captions, boxes, frames, strict=True)):
        if not some:  # nobody has drawn boxes in it: nothing can be said about its nouns
            continue
        for mention in mentions([word.text for word in caption.words], labels):
            named = [box for box in some if box.label == mention.label]
            if not named:
                absent += 1
                continue
            words = caption.words[mention.first : mention.last]
            looked = np.mean([attention_map(word) for word in words], axis=0)
            rows, cols = looked.shape
            covered = coverage(named, frame, rows, cols)
            found.append(
                GroundedNoun(image, mention.label, looked, covered, cell_centers_in_boxes(named, frame, rows, cols))
            )
    return found, absent


def grounding(found: Sequence[GroundedNoun], absent: int = 0) -> Grounding | None:
    """None where no noun names a box."""
    if not found:
        return None
    images = sorted({each.image for each in found})
    groups = [[each for each in found if each.image == image] for image in images]
    mass, pointing = (mean_of([[getattr(each, k) for each in some] for some in groups]) for k in ("mass", "points"))
    assert mass is not None and pointing is not None
    foreign = _elsewhere(groups)
    return Grounding(
        len(images),
        len(found),
        absent,
        Comparison(mass, _mean([float(each.covered.mean()) for each in found]), foreign and foreign[0]),
        Comparison(pointing, _mean([float(each.hit.mean()) for each in found]), foreign and foreign[1]),
        _labels(found),
    )


def _elsewhere(groups: list[list[GroundedNoun]]) -> tuple[float, float] | None:
    """Mass and pointing with each noun's map replaced by those of the nouns of all other images, on average.

    An expectation, not a draw: mass is linear in the map, and the pointing game in the map's highest cell.
    """
    if len(groups) < 2:
        return None
    maps = [np.sum([each.looked for each in some], axis=0) for some in groups]
    tops = [np.sum([_top(each.looked) for each in some], axis=0) for some in groups]
    counts = [len(some) for some in groups]
    all_maps, all_tops, total = np.sum(maps, axis=0), np.sum(tops, axis=0), sum(counts)
    masses, points = [], []
    for some, own, top, count in zip(groups, maps, tops, counts, strict=True):
        others = total - count
        for each in some:
            masses.append(float((each.covered * (all_maps - own)).sum() / others))
            points.append(float((each.hit * (all_tops - top)).sum() / others))
    return _mean(masses), _mean(points)


def _top(looked: Map) -> Map:
    best: Map = (looked >= looked.max() - 1e-12).astype(np.float64)
    best /= best.sum()
    return best


def _labels(found: Sequence[GroundedNoun]) -> dict[str, CategoryFigures]:
    by_label: dict[str, list[GroundedNoun]] = {}
    for each in found:
        by_label.setdefault(each.label, []).append(each)
    return {
        label: CategoryFigures(
            len(some),
            _mean([each.mass for each in some]),
            _mean([float(each.covered.mean()) for each in some]),
            _mean([each.points for each in some]),
        )
        for label, some in sorted(by_label.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def coverage(boxes: Sequence[Box], frame: Frame, rows: int, cols: int) -> Map:
    """The share of each cell's area that the boxes cover together, exactly: (rows, cols) of 0 to 1."""
    across = _edges([edge for box in boxes for edge in (box.left, box.right)], frame.width, cols)
    down = _edges([edge for box in boxes for edge in (box.top, box.bottom)], frame.height, rows)
    x, y = (across[1:] + across[:-1]) / 2, (down[1:] + down[:-1]) / 2  # no edge lies inside these strips
    area = np.outer(np.diff(down), np.diff(across))
    inside = np.zeros(area.shape, np.bool_)
    for box in boxes:
        inside |= np.outer((y > box.top) & (y < box.bottom), (x > box.left) & (x < box.right))
    cells = np.zeros((rows, cols))
    row = np.minimum((y * rows / frame.height).astype(int), rows - 1)
    col = np.minimum((x * cols / frame.width).astype(int), cols - 1)
    np.add.at(cells, (row[:, None], col[None, :]), area * inside)
    return cells / (frame.width / cols * frame.height / rows)


def _edges(boxes: list[float], length: int, cells: int) -> NDArray[np.float64]:
    """Where a box or a cell begins or ends along one side of the picture, in order."""
    lines = [*np.clip(boxes, 0, length), *(np.arange(cells + 1) * length / cells)]
    return np.unique(np.asarray(lines, np.float64))


def cell_centers_in_boxes(boxes: Sequence[Box], frame: Frame, rows: int, cols: int) -> NDArray[np.bool_]:
    """Which cells have their centre inside a box, (rows, cols)."""
    x = (np.arange(cols) + 0.5) * frame.width / cols
    y = (np.arange(rows) + 0.5) * frame.height / rows
    inside = np.zeros((rows, cols), np.bool_)
    for box in boxes:
        inside |= np.outer((y >= box.top) & (y < box.bottom), (x >= box.left) & (x < box.right))
    return inside
