import numpy as np

from captioner.evaluation.reliance import as_map, reliance
from captioner.inference.search import SearchOptions
from tests.evaluation.handmade_maps import caption, word
from tests.evidence.test_occlusion import RedInTheCorner, red_corner


def item(tmp_path, boxes=()):
    from PIL import Image

    from captioner.data.caption_set import Item

    Image.fromarray(red_corner()).save(tmp_path / "red.png")
    return Item(1, tmp_path / "red.png", ("red",), "val", boxes)


def test_habit_and_correlation_of_a_model_that_is_known(tmp_path):
    corner, far = np.full((4, 4), 0.01, np.float32), np.full((4, 4), 0.01, np.float32)
    corner[0, 0], far[3, 3] = 0.85, 0.85
    figures = []
    for alpha in (corner, far):
        said = caption(word("red", alpha), word("habit", alpha), word("a", alpha))
        figures.append(reliance(RedInTheCorner(), [item(tmp_path)], [said], SearchOptions()))
    near, away = figures
    assert near is not None and away is not None
    assert near.words == 2  # "a" is no content word
    assert near.habit.value == 0.5  # "habit" ignores the picture, "red" does not
    assert near.correlation.value > 0.2 > away.correlation.value


def test_falls_become_a_map_that_sums_to_1():
    np.testing.assert_allclose(as_map(np.array([[2.0, -1.0], [6.0, 0.0]], np.float32)), [[0.25, 0], [0.75, 0]])
    np.testing.assert_allclose(as_map(np.array([[-1.0, -2.0]], np.float32)), [[0.5, 0.5]])


def test_captions_without_content_words_have_no_figures(tmp_path):
    said = caption(word("a", np.full((4, 4), 1 / 16)))
    assert reliance(RedInTheCorner(), [item(tmp_path)], [said], SearchOptions()) is None
