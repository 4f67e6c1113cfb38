"""Which cells boxes cover, compared with hand-computed values and with counted pixels."""

from __future__ import annotations

import numpy as np

from captioner.data.box_coverage import cell_centers_in_boxes, coverage
from captioner.data.caption_set import Box
from captioner.images.frame import Frame

FRAME = Frame(20, 10)


def test_coverage_is_the_exact_share_of_each_cell_inside_the_boxes() -> None:
    boxes = [Box("dog", 5, 0, 15, 5), Box("dog", 10, 0, 15, 10), Box("dog", 12, 2, 14, 4)]
    # left cell (10 x 10): a 5 x 5 corner; right cell: 5 x 10, its overlaps counted once
    np.testing.assert_allclose(coverage(boxes, FRAME, 1, 2), [[0.25, 0.5]])


def test_coverage_agrees_with_counting_pixels() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        frame = Frame(int(random.integers(30, 60)) * 12, int(random.integers(30, 60)) * 12)
        x, y = (
            np.sort(random.integers(-20, frame.width + 20, (3, 2))),
            np.sort(random.integers(0, frame.height, (3, 2))),
        )
        boxes = [Box("dog", *map(float, (a, c, b, d))) for (a, b), (c, d) in zip(x, y, strict=True)]
        mask = np.zeros((frame.height, frame.width))
        for box in boxes:
            mask[int(box.top) : int(box.bottom), max(int(box.left), 0) : max(int(box.right), 0)] = 1
        cells = mask.reshape(4, frame.height // 4, 6, frame.width // 6).mean((1, 3))
        np.testing.assert_allclose(coverage(boxes, frame, 4, 6), cells, atol=1e-9)


def test_a_cell_is_a_hit_if_its_center_is_in_a_box() -> None:
    assert cell_centers_in_boxes([Box("dog", 4, 4, 6, 6)], FRAME, 1, 2).tolist() == [[True, False]]
    assert cell_centers_in_boxes([Box("dog", 6, 0, 20, 10)], FRAME, 1, 2).tolist() == [[False, True]]
