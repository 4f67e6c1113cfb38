"""Grounding figures, compared with hand-computed values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from captioner.data.caption_set import Box
from captioner.evaluation.grounding import Grounding, grounded_nouns, grounding
from captioner.images.frame import Frame
from tests.evaluation.handmade_maps import EVEN, LEFT, RIGHT, caption, word

FRAME = Frame(20, 10)


def test_mass_and_pointing_equal_hand_computed_values() -> None:
    """Each picture has a dog in one half; the first caption attends to it with 0.8, the second misses with 0.7."""
    captions = [
        caption(word("a", EVEN), word("dog", [[0.8, 0.2]])),
        caption(word("a", EVEN), word("dog", [[0.7, 0.3]])),
    ]
    boxes = [[Box("dog", 0, 0, 10, 10)], [Box("dog", 10, 0, 20, 10), Box("cat", 0, 0, 10, 10)]]
    found = grounding(*grounded_nouns(captions, boxes, [FRAME, FRAME]))
    assert found is not None
    assert (found.nouns, found.images, found.absent) == (2, 2, 0)
    assert found.mass.value.value == pytest.approx((0.8 + 0.3) / 2)
    assert found.mass.even == pytest.approx(0.5)
    assert found.mass.elsewhere == pytest.approx((0.7 + 0.2) / 2)  # each picture's boxes under the other's map
    assert found.pointing.value.value == 0.5
    assert found.pointing.elsewhere == 0.5
    assert found.labels["dog"].nouns == 2


def test_nouns_without_a_box_are_counted_separately() -> None:
    captions = [caption(word("dog", LEFT), word("cat", LEFT)), caption(word("dog", LEFT)), caption(word("dog", LEFT))]
    boxes = [[Box("dog", 0, 0, 10, 10)], [Box("cat", 0, 0, 10, 10)], []]  # the last picture has no boxes
    found = grounding(*grounded_nouns(captions, boxes, [FRAME] * 3))
    assert found is not None
    assert (found.nouns, found.absent) == (1, 2)
    assert found.absent_share.value == pytest.approx(2 / 3)
    assert found.mass.elsewhere is None  # there is no other picture with a noun


def test_the_share_of_nouns_without_a_box_has_an_interval_over_images() -> None:
    """Half of the pictures have no cat. Naming the cat five times per caption makes the interval no narrower.

    Its half width is that of a share of 400 independent pictures: 1.96 * sqrt(0.5 * 0.5 / 400).
    """
    boxes = [[Box("cat", 0, 0, 10, 10)], [Box("dog", 0, 0, 10, 10)]] * 200
    for times in (1, 5):
        captions = [caption(*[word("cat", LEFT)] * times)] * 400
        found = grounding(*grounded_nouns(captions, boxes, [FRAME] * 400))
        assert found is not None
        assert (found.absent, found.absent_share.value) == (200 * times, 0.5)
        half = 1.96 * math.sqrt(0.25 / 400)
        assert found.absent_share.low == pytest.approx(0.5 - half, abs=half / 5)
        assert found.absent_share.high == pytest.approx(0.5 + half, abs=half / 5)


def test_captions_without_nouns_have_no_figures() -> None:
    assert grounding(*grounded_nouns([caption(word("sky", LEFT))], [[Box("dog", 0, 0, 5, 5)]], [FRAME])) is None


def test_maps_of_other_images_score_as_high_as_a_fixed_map() -> None:
    """A map that is always on the left scores well if objects are on the left. The control shows the same score."""
    captions = [caption(word("dog", LEFT)) for _ in range(4)]
    sides = [Box("dog", 0, 0, 10, 10)] * 3 + [Box("dog", 10, 0, 20, 10)]
    found = grounding(*grounded_nouns(captions, [[box] for box in sides], [FRAME] * 4))
    assert found is not None
    assert found.pointing.value.value == found.pointing.elsewhere == 0.75
    assert found.pointing.even == 0.5


def test_a_noun_of_two_words_has_the_mean_of_their_maps() -> None:
    captions = [caption(word("hot", LEFT), word("dog", RIGHT))]
    boxes = [[Box("hot dog", 0, 0, 10, 10), Box("dog", 10, 0, 20, 10)]]
    named, absent = grounded_nouns(captions, boxes, [FRAME])
    assert [each.label for each in named] == ["hot dog"] and absent == []
    assert named[0].mass == pytest.approx(0.5)


def test_equally_attended_cells_share_the_point() -> None:
    (named,), _ = grounded_nouns([caption(word("dog", EVEN))], [[Box("dog", 0, 0, 10, 10)]], [FRAME])
    assert named.points == 0.5


def test_intervals_contain_the_value_and_are_wider_for_fewer_images() -> None:
    random = np.random.default_rng(1)

    def some(images: int) -> Grounding:
        captions = [caption(word("dog", [[p, 1 - p]])) for p in random.random(images)]
        found = grounding(*grounded_nouns(captions, [[Box("dog", 0, 0, 10, 10)]] * images, [FRAME] * images))
        assert found is not None
        return found

    few, many = some(20).mass.value, some(500).mass.value
    assert few.low < few.value < few.high
    assert many.high - many.low < (few.high - few.low) / 2
    # The width of the interval of a mean of n uniform samples: 2 * 1.96 / sqrt(12 n)
    assert many.high - many.low == pytest.approx(2 * 1.96 / math.sqrt(12 * 500), rel=0.2)


def test_figures_by_size_use_the_largest_box_of_the_noun() -> None:
    dog = caption(word("dog", LEFT))
    frame = Frame(1000, 1000)

    def boxes(side: float) -> list[Box]:
        return [Box("dog", 0, 0, 10, 10), Box("dog", 0, 0, side, side)]

    captions, sides = [dog] * 4, (50, 100, 300, 600)  # shares of the picture: 0.0025, 0.01, 0.09, 0.36
    nouns, absent = grounded_nouns(captions, [boxes(side) for side in sides], [frame] * 4)
    figures = grounding(nouns, absent)
    assert figures is not None
    assert {name: sized.nouns for name, sized in figures.sizes.items()} == {"small": 2, "medium": 1, "large": 1}
    assert figures.sizes["large"].mass.value.value > figures.sizes["small"].mass.value.value


@pytest.mark.parametrize("scale", [1, 2.5], ids=["256x256", "640x640"])
@pytest.mark.parametrize(
    ("side", "size"), [(31.9, "small"), (32, "medium"), (95.9, "medium"), (96, "large")], ids=lambda value: str(value)
)
def test_sizes_are_those_of_a_picture_of_256_pixels(side: float, size: str, scale: float) -> None:
    """Small is under 32 x 32 of 256 x 256 pixels, medium is under 96 x 96, in pictures of any resolution."""
    box = Box("dog", 0, 0, side * scale, side * scale)
    picture = round(256 * scale)
    figures = grounding(*grounded_nouns([caption(word("dog", LEFT))], [[box]], [Frame(picture, picture)]))
    assert figures is not None and set(figures.sizes) == {size}


def test_other_maps_can_be_judged_in_place_of_the_attention() -> None:
    dog, frame = caption(word("a", LEFT), word("dog", LEFT)), Frame(2, 1)
    box = [Box("dog", 1, 0, 2, 1)]
    (by_attention,), _ = grounded_nouns([dog], [box], [frame])
    maps = [[np.array(EVEN), np.array(RIGHT)]]
    (by_reliance,), _ = grounded_nouns([dog], [box], [frame], maps)
    assert (by_attention.mass, by_reliance.mass) == (0, 1)
