"""Grounding: is the attention for a noun inside the boxes of the objects that it names?

Two figures, for the captions that the model found by itself: the share of the attention inside the boxes (mass), and
how often the most attended cell is inside one (the pointing game).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption
from captioner.data.box_coverage import cell_centers_in_boxes, coverage
from captioner.data.caption_set import Box
from captioner.evaluation.attention_maps import Map, attention_map
from captioner.images.frame import Frame
from captioner.metrics.means import Mean, mean_of
from captioner.text.nouns import mentions


@dataclass(frozen=True)
class GroundedNoun:
    """A noun of a caption that names a category with boxes in the picture."""

    image: int
    label: str
    attention: Map  # mean over the words of the noun
    covered: Map  # share of each cell's area inside the boxes of the category
    hit: NDArray[np.bool_]  # whether the center of each cell is inside one of the boxes
    area: float = 1.0  # of the largest box, relative to the picture

    @property
    def mass(self) -> float:
        """Share of the attention inside the boxes."""
        return float((self.attention * self.covered).sum())

    @property
    def points(self) -> float:
        """1 if the most attended cell is a hit, else 0; the mean if several cells are equal."""
        best = self.attention >= self.attention.max() - 1e-12
        return float(self.hit[best].mean())


@dataclass(frozen=True)
class Comparison:
    """A figure, and the same figure for an even map and for the maps of other images on the same boxes."""

    value: Mean
    even: float
    elsewhere: float | None  # None if only one image has such nouns


@dataclass(frozen=True)
class SizeFigures:
    """Figures of the nouns whose largest box is small, medium or large."""

    nouns: int
    mass: Comparison
    pointing: Comparison


@dataclass(frozen=True)
class CategoryFigures:
    """Figures of the nouns of one category."""

    nouns: int
    mass: float
    area: float
    pointing: float


@dataclass(frozen=True)
class Grounding:
    """Figures of all nouns with boxes. Means are over nouns, intervals over images."""

    images: int  # with such a noun
    nouns: int
    absent: int  # nouns of a category without a box in the picture; not in the figures of the maps
    absent_share: Mean  # of all nouns that name a category
    mass: Comparison
    pointing: Comparison
    labels: dict[str, CategoryFigures]  # most frequent first
    sizes: dict[str, SizeFigures]  # small, medium, large, where there are such nouns


# Bounds of small and medium objects, as shares of the picture's area: 32 x 32 and 96 x 96 pixels of 256 x 256, the size
# at which the models see a picture. The pixels are COCO's bounds, which COCO counts in the original picture.
SMALL, MEDIUM = 32 * 32 / 256**2, 96 * 96 / 256**2


def grounded_nouns(
    captions: Sequence[Caption],
    boxes: Sequence[Sequence[Box]],
    frames: Sequence[Frame],
    maps: Sequence[Sequence[Map]] | None = None,
) -> tuple[list[GroundedNoun], list[int]]:
    """The nouns whose category has boxes in the picture, and the image of each noun whose category has none.

    `maps` are maps to judge instead of the attention, one per word of each caption.
    """
    labels = {box.label for image_boxes in boxes for box in image_boxes}
    nouns: list[GroundedNoun] = []
    absent: list[int] = []
    for image, (caption, image_boxes, frame) in enumerate(zip(captions, boxes, frames, strict=True)):
        if not image_boxes:  # the picture was not annotated
            continue
        for mention in mentions([word.text for word in caption.words], labels):
            named = [box for box in image_boxes if box.label == mention.label]
            if not named:
                absent.append(image)
                continue
            if maps is not None:
                own_maps = list(maps[image][mention.first : mention.last])
            else:
                own_maps = [attention_map(word) for word in caption.words[mention.first : mention.last]]
            attention = np.mean(own_maps, axis=0)
            rows, cols = attention.shape
            covered = coverage(named, frame, rows, cols)
            hit = cell_centers_in_boxes(named, frame, rows, cols)
            area = max((box.right - box.left) * (box.bottom - box.top) for box in named) / (frame.width * frame.height)
            nouns.append(GroundedNoun(image, mention.label, attention, covered, hit, area))
    return nouns, absent


def grounding(nouns: Sequence[GroundedNoun], absent: Sequence[int]) -> Grounding | None:
    """None if no noun names a box. `absent` has the image of each noun without a box."""
    if not nouns:
        return None
    limits = {"small": (0.0, SMALL), "medium": (SMALL, MEDIUM), "large": (MEDIUM, math.inf)}
    by_size = {name: [n for n in nouns if low <= n.area < high] for name, (low, high) in limits.items()}
    sizes = {name: SizeFigures(len(group), *_compared(group)) for name, group in by_size.items() if group}
    mass, pointing = _compared(nouns)
    return Grounding(
        images=len({noun.image for noun in nouns}),
        nouns=len(nouns),
        absent=len(absent),
        absent_share=_absent_share(nouns, absent),
        mass=mass,
        pointing=pointing,
        labels=_categories(nouns),
        sizes=sizes,
    )


def _absent_share(nouns: Sequence[GroundedNoun], absent: Sequence[int]) -> Mean:
    without_box: dict[int, list[float]] = {}
    for noun in nouns:
        without_box.setdefault(noun.image, []).append(0.0)
    for image in absent:
        without_box.setdefault(image, []).append(1.0)
    share = mean_of(list(without_box.values()))
    assert share is not None
    return share


def _compared(nouns: Sequence[GroundedNoun]) -> tuple[Comparison, Comparison]:
    """Mass and pointing of these nouns, with their controls."""
    by_image: dict[int, list[GroundedNoun]] = {}
    for noun in nouns:
        by_image.setdefault(noun.image, []).append(noun)
    groups = list(by_image.values())
    mass, pointing = (mean_of([[getattr(noun, k) for noun in group] for group in groups]) for k in ("mass", "points"))
    assert mass is not None and pointing is not None
    elsewhere = _elsewhere(groups)
    return (
        Comparison(mass, _mean([float(noun.covered.mean()) for noun in nouns]), elsewhere and elsewhere[0]),
        Comparison(pointing, _mean([float(noun.hit.mean()) for noun in nouns]), elsewhere and elsewhere[1]),
    )


def _elsewhere(groups: list[list[GroundedNoun]]) -> tuple[float, float] | None:
    """Mass and pointing if each noun had the map of a noun of another image, averaged over all of them.

    The exact mean, not a sample: mass is linear in the map, and pointing is linear in the most attended cell.
    """
    if len(groups) < 2:
        return None
    maps = [np.sum([noun.attention for noun in group], axis=0) for group in groups]
    tops = [np.sum([_top(noun.attention) for noun in group], axis=0) for group in groups]
    counts = [len(group) for group in groups]
    all_maps, all_tops, total = np.sum(maps, axis=0), np.sum(tops, axis=0), sum(counts)
    masses, points = [], []
    for group, own_maps, own_tops, count in zip(groups, maps, tops, counts, strict=True):
        others = total - count
        for noun in group:
            masses.append(float((noun.covered * (all_maps - own_maps)).sum() / others))
            points.append(float((noun.hit * (all_tops - own_tops)).sum() / others))
    return _mean(masses), _mean(points)


def _top(attention: Map) -> Map:
    """A map with all attention on the most attended cell; equal cells share it."""
    best: Map = (attention >= attention.max() - 1e-12).astype(np.float64)
    best /= best.sum()
    return best


def _categories(nouns: Sequence[GroundedNoun]) -> dict[str, CategoryFigures]:
    by_label: dict[str, list[GroundedNoun]] = {}
    for noun in nouns:
        by_label.setdefault(noun.label, []).append(noun)
    return {
        label: CategoryFigures(
            len(group),
            _mean([noun.mass for noun in group]),
            _mean([float(noun.covered.mean()) for noun in group]),
            _mean([noun.points for noun in group]),
        )
        for label, group in sorted(by_label.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
