import dataclasses

import numpy as np
import pytest

from captioner.evaluation import tables
from captioner.evaluation.hallucination import MentionedObject
from captioner.evaluation.reliance import as_map, object_habit, reliance
from captioner.inference.search import SearchOptions
from captioner.text.vocabulary import Vocabulary
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


def test_habit_of_present_and_absent_objects_is_the_mean_over_their_nouns():
    # "a dog with a frisbee", where only the dog is there; "a tennis racket on a bed", where both are; "a field"
    objects = [
        [MentionedObject("dog", 1, 2, present=True), MentionedObject("frisbee", 4, 5, present=False)],
        [MentionedObject("tennis racket", 1, 3, present=True), MentionedObject("bed", 5, 6, present=True)],
        [],
    ]
    shares = [[0.9, 0.1, 0.9, 0.9, 0.3], [0.9, 0.2, 1.0, 0.9, 0.9, 0.05], [0.9, 0.9]]
    present, absent = (object_habit(objects, shares, present=value) for value in (True, False))
    assert present is not None and absent is not None
    assert (present.nouns, absent.nouns) == (3, 1)
    assert present.habit.value == pytest.approx((0.1 + (0.2 + 1.0) / 2 + 0.05) / 3)
    assert present.marked.value == pytest.approx(1 / 3)  # the racket
    assert absent.habit.value == pytest.approx(0.3)
    assert absent.marked.value == 0
    assert object_habit(objects[1:], shares[1:], present=False) is None


def test_an_absent_object_that_ignores_the_picture_has_more_habit_than_a_present_one_that_needs_it(tmp_path):
    from captioner.data.caption_set import Box

    class Dogs(RedInTheCorner):
        vocabulary = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", "dog", "frisbee"))

    corner = np.full((4, 4), 0.01, np.float32)
    corner[0, 0] = 0.85
    said = caption(word("dog", corner), word("frisbee", corner))
    boxed = dataclasses.replace(item(tmp_path, (Box("dog", 0, 0, 8, 8),)), captions=("a dog",))
    figures = reliance(Dogs(), [boxed], [said], SearchOptions())
    assert figures is not None and figures.present is not None and figures.absent is not None
    assert (figures.present.nouns, figures.absent.nouns) == (1, 1)
    assert figures.absent.habit.value == pytest.approx(1) and figures.present.habit.value < 0.4
    rows = {row.name: row for row in tables._reliance(figures).rows}
    assert rows["habit, absent objects"].value == "100.0%"
    assert rows["habit, absent objects"].remark == "of 1 objects; 100.0% from habit"
    without_boxes = reliance(Dogs(), [item(tmp_path)], [said], SearchOptions())
    assert without_boxes is not None and without_boxes.present is without_boxes.absent is None
