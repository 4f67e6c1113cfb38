import dataclasses

import numpy as np
import pytest
from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError, UsageError
from captioner.overlay import heat, words
from captioner.overlay.heat import Style
from tests.overlay.handmade_captions import blob, caption, flat, one_cell, picture


def range_of(image: Image.Image) -> float:
    """The largest difference of colors in a picture."""
    return float(np.ptp(np.asarray(image).astype(float), axis=(0, 1)).max())


def on_grey(*alphas: np.ndarray) -> Caption:
    of = dataclasses.replace(picture(120, 80), image=Image.new("RGB", (120, 80), (128, 128, 128)))
    return Caption(tuple(Word("w", 0.0, alpha) for alpha in alphas), None, 0.0, of)


def test_a_flat_map_looks_flat_beside_a_sharp_one():
    even, sharp = words(on_grey(flat(8, 8), blob(3, 3, 8, 8)))
    assert range_of(even) <= 1
    assert range_of(sharp) > 100


def test_nearly_flat_maps_are_not_exaggerated():
    nearly = flat(8, 8)
    nearly[2, 2] *= 1.1
    one, two = words(on_grey(nearly / nearly.sum(), flat(8, 8)))
    assert range_of(one) < 15
    assert range_of(two) <= 1


def test_strengths_can_be_compared_on_one_scale_but_not_on_a_scale_per_word():
    strong, weak = blob(3, 3, 8, 8, width=0.5), blob(3, 3, 8, 8, width=2.0)
    one, two = words(on_grey(strong, weak))
    assert np.asarray(one).max() > np.asarray(two).max() + 40
    alone, other = words(on_grey(strong, weak), Style(per_word=True))
    assert np.asarray(alone).max() == pytest.approx(np.asarray(other).max(), abs=6)


def test_the_same_share_looks_the_same_on_a_finer_grid():
    coarse = np.zeros((4, 4), np.float32)
    coarse[1, 2] = 1
    fine = np.kron(coarse, np.full((2, 2), 0.25, np.float32))
    one, two = words(on_grey(coarse, fine), Style(blocks=True))
    assert np.array_equal(np.asarray(one), np.asarray(two))


def test_opacity_0_shows_the_grey_picture_and_opacity_1_hides_it_at_the_peak():
    one = caption("a dog")
    (first, _) = words(one, Style(opacity=0.0))
    assert np.array_equal(np.asarray(first), np.asarray(heat.mute(one.picture.open())))
    hidden = Caption((Word("w", 0.0, one_cell(0, 0, 1, 1)),), None, 0.0, one.picture)
    (whole,) = words(hidden, Style(opacity=1.0, per_word=True))
    assert range_of(whole) <= 1


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
