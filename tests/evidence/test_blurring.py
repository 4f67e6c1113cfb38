import numpy as np

from captioner.evidence.blurring import blank, blurred, cover_cells

RANDOM = np.random.default_rng(0)


def test_a_blurred_picture_keeps_its_mean_color_and_loses_its_detail():
    pixels = RANDOM.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    away = blurred(pixels)
    np.testing.assert_allclose(away.mean((0, 1)), pixels.mean((0, 1)), atol=6)
    assert away.std((0, 1)).max() < pixels.std((0, 1)).min() / 5


def test_only_the_covered_cells_are_replaced():
    pixels, other = np.zeros((30, 40, 3), np.uint8), np.full((30, 40, 3), 9, np.uint8)
    cover = np.zeros((3, 4), bool)
    cover[1, 2] = True
    changed = cover_cells(pixels, other, cover)
    assert (changed[10:20, 20:30] == 9).all()
    assert changed.sum() == 9 * 3 * 100
    assert not pixels.any()


def test_blanked_cells_have_the_mean_color_and_the_rest_is_unchanged():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), np.uint8)
    cover = np.array([[True, False], [False, False]])
    painted = blank(pixels, cover)
    # 9 rows and 7 columns in 2 x 2 cells: pixel i is in cell i * 2 // n
    assert (painted[:5, :4] == np.rint(pixels.reshape(-1, 3).mean(0)).astype(np.uint8)).all()
    assert (painted[5:] == pixels[5:]).all() and (painted[:, 4:] == pixels[:, 4:]).all()
