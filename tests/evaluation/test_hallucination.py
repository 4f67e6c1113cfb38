"""CHAIR on captions and boxes written out by hand."""

import pytest

from captioner.data.caption_set import Box, Item
from captioner.evaluation.hallucination import hallucination
from tests.evaluation.handmade_maps import EVEN, caption, word


def item(number: int, references: tuple[str, ...], *labels: str) -> Item:
    return Item(number, None, references, "val", tuple(Box(label, 0, 0, 1, 1) for label in labels))  # type: ignore[arg-type]


def said(text: str):
    return caption(*(word(part, EVEN) for part in text.split()))


def test_an_object_is_hallucinated_if_neither_boxes_nor_references_have_it():
    items = [
        item(1, ("a man with his puppy",), "person"),
        item(2, ("a kitchen",), "oven", "person"),
        item(3, ("a field",), "dog"),
    ]
    captions = [
        said("a woman and a dog with a frisbee"),  # the dog is in the reference; the frisbee nowhere
        said("a stove in a kitchen"),  # a stove is an oven
        said("a green field"),  # names nothing
    ]
    figures = hallucination(items, captions)
    assert figures is not None
    assert (figures.captions, figures.mentioned) == (3, 4)
    assert figures.objects.value == pytest.approx(1 / 4)
    assert figures.sentences.value == pytest.approx(1 / 3)
    assert next(iter(figures.labels.items())) == ("frisbee", (1, 1))


def test_a_picture_counts_the_same_whatever_other_pictures_are_evaluated():
    """No box of this picture is a frisbee's; with or without one elsewhere, the caption's frisbee is counted."""
    first, second = item(1, (), "dog"), item(2, (), "frisbee")
    alone = hallucination([first], [said("a dog with a frisbee")])
    together = hallucination([first, second], [said("a dog with a frisbee"), said("grass")])
    assert alone is not None and together is not None
    assert alone.labels == together.labels == {"frisbee": (1, 1), "dog": (1, 0)}


def test_shapes_are_objects_in_drawings_only():
    photo = hallucination([item(1, (), "dog")], [said("a dog on a square with a star")])
    drawing = hallucination([item(1, (), "circle")], [said("a circle and a star")])
    assert photo is not None and photo.labels == {"dog": (1, 0)}
    assert drawing is not None and drawing.labels == {"star": (1, 1), "circle": (1, 0)}


def test_labels_are_the_same_in_capitals():
    figures = hallucination([item(1, (), "Dog")], [said("a dog")])
    assert figures is not None and figures.labels == {"dog": (1, 0)}


def test_pictures_without_boxes_are_not_counted():
    items = [item(1, (), "dog"), item(2, ())]
    figures = hallucination(items, [said("a dog"), said("a dog")])
    assert figures is not None and (figures.captions, figures.mentioned) == (1, 1)


def test_nothing_is_measured_for_labels_whose_words_are_not_known():
    assert hallucination([item(1, (), "hat")], [said("a hat")]) is None
    assert hallucination([item(1, ())], [said("a dog")]) is None
    assert hallucination([item(1, (), "dog")], [said("a field")]) is None
