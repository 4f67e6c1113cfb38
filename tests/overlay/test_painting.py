import dataclasses

import numpy as np
import pytest
from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError, UsageError
from captioner.overlay import painting, words
from captioner.overlay.painting import Style
from tests.overlay.handmade_captions import blob, caption, flat, one_cell, picture


def range_of(image: Image.Image) -> float:
    """The largest difference of colors in a picture."""
    return float(np.ptp(np.asarray(image).astype(float), axis=(0, 1)).max())


def on_grey(*alphas: np.ndarray) -> Caption:
    of = dataclasses.replace(picture(120, 80), image=Image.new("RGB", (120, 80), (128, 128, 128)))
    return Caption(tuple(Word("w", 0.0, alpha) for alpha in alphas), None, 0.0, of)


def test_a_flat_map_looks_flat_beside_a_sharp_one():
    for name in ("spotlight", "heat", "blocks"):
        even, sharp = words(on_grey(flat(8, 8), blob(3, 3, 8, 8)), Style(name))
        assert range_of(even) <= 1
        assert range_of(sharp) > 60


def test_nearly_flat_maps_are_not_exaggerated():
    nearly = flat(8, 8)
    nearly[2, 2] *= 1.1
    one, two = words(on_grey(nearly / nearly.sum(), flat(8, 8)), Style("heat"))
    assert range_of(one) < 15
    assert range_of(two) <= 1


def test_strengths_can_be_compared_on_one_scale_but_not_on_a_scale_per_word():
    strong, weak = blob(3, 3, 8, 8, width=0.5), blob(3, 3, 8, 8, width=2.0)
    one, two = words(on_grey(strong, weak), Style("heat"))
    assert np.asarray(one).max() > np.asarray(two).max() + 40
    alone, other = words(on_grey(strong, weak), Style("heat", per_word=True))
    assert np.asarray(alone).max() == pytest.approx(np.asarray(other).max(), abs=6)


def test_the_same_share_looks_the_same_on_a_finer_grid():
    coarse = np.zeros((4, 4), np.float32)
    coarse[1, 2] = 1
    fine = np.kron(coarse, np.full((2, 2), 0.25, np.float32))
    one, two = words(on_grey(coarse, fine), Style("heat", grid=True))
    assert np.array_equal(np.asarray(one), np.asarray(two))


def test_opacity_0_shows_the_photo_and_opacity_1_hides_it_at_the_peak():
    one = caption("a dog")
    plain = np.asarray(one.picture.open())
    grey = np.asarray(one.picture.open().convert("L")).astype(int)
    (spotlight, _) = words(one, Style(opacity=0.0))
    outside = np.asarray(spotlight)[20:, 30:]  # the line is at the upper left
    assert np.array_equal(outside, plain[20:, 30:])
    (heat, _) = words(one, Style("heat", opacity=0.0))
    assert np.corrcoef(np.asarray(heat)[..., 0].ravel(), grey.ravel())[0, 1] > 0.999
    hidden = Caption((Word("w", 0.0, one_cell(0, 0, 1, 1)),), None, 0.0, one.picture)
    (whole,) = words(hidden, Style("heat", opacity=1.0, per_word=True))
    assert range_of(whole) <= 1


def test_a_spotlight_keeps_the_photo_where_the_model_looked_and_takes_light_and_color_away_elsewhere():
    red = dataclasses.replace(picture(120, 80), image=Image.new("RGB", (120, 80), (200, 40, 40)))
    (painted,) = words(Caption((Word("w", 0.0, one_cell(0, 0, 4, 4)),), None, 0.0, red), Style(opacity=1.0))
    lit, dark = np.asarray(painted)[5, 5].astype(int), np.asarray(painted)[70, 110].astype(int)
    assert lit.tolist() == [200, 40, 40]
    assert np.ptp(dark) == 0 and 0 < dark[0] < 40


def test_the_line_encloses_the_fewest_cells_with_half_of_the_attention():
    alpha = np.full((4, 4), 0.4 / 14, np.float32)
    alpha[1, 2] = alpha[2, 2] = 0.3
    (painted,) = words(on_grey(alpha), Style("contour", grid=True))
    white = (np.asarray(painted) == 255).all(axis=-1)
    ys, xs = np.nonzero(white)
    inner = white[22:58, 62:88]  # the two cells are x 60 to 90, y 20 to 60
    assert (xs.min(), ys.min()) == (0, 0) or (xs.min(), ys.min()) == (60, 20)
    assert white[20, 60:90].all() and white[59, 60:90].all() and not inner[5:-5, 5:-5].any()


def test_the_line_of_an_even_map_is_the_whole_picture():
    (painted,) = words(on_grey(flat(4, 4)), Style("contour"))
    assert range_of(painted) == 0


@pytest.mark.parametrize(
    "alpha, area, focus",
    [(flat(5, 5), 0.5, 0.0), (one_cell(1, 1, 5, 5), 0.02, 1.0), (np.eye(4, dtype=np.float32) / 4, 0.125, None)],
)
def test_half_area_and_focus_of_known_maps(alpha, area, focus):
    assert painting.half_area(alpha) == pytest.approx(area, abs=1e-6)
    if focus is not None:
        assert painting.focus(alpha) == pytest.approx(focus, abs=0.01)


def test_an_unknown_style_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="spotlight"):
        Style("spotlihgt")  # type: ignore[arg-type]


@pytest.mark.parametrize("opacity", [-0.1, 1.1])
def test_an_opacity_outside_0_to_1_is_refused(opacity):
    with pytest.raises(UsageError, match="between 0 and 1"):
        Style(opacity=opacity)


def test_only_the_outline_of_the_cell_is_drawn_for_a_hard_model():
    soft = on_grey(blob(1, 1, 4, 4))
    hard = dataclasses.replace(soft, words=(dataclasses.replace(soft.words[0], cell=(2, 3)),))
    (without,), (with_cell,) = words(soft), words(hard)
    ys, xs = np.nonzero((np.asarray(without) != np.asarray(with_cell)).any(axis=-1))
    assert (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) == (90, 40, 120, 60)
    assert not (np.asarray(without) != np.asarray(with_cell))[46:54, 96:114].any()  # the inside is unchanged


def test_a_cell_smaller_than_its_outline_can_be_drawn():
    one = on_grey(flat(14, 14))
    tiny = dataclasses.replace(picture(3, 2), image=Image.new("RGB", (3, 2)))
    word = dataclasses.replace(one.words[0], cell=(13, 13))
    (painted,) = words(Caption((word,), None, 0.0, tiny))
    assert painted.size == (3, 2)


def test_a_caption_without_a_picture_is_an_error():
    with pytest.raises(CaptionerError, match="no picture"):
        list(words(dataclasses.replace(caption(), picture=None)))
