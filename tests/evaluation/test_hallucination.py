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
    # "frisbee" is no label of these boxes, so it is not counted. With a box of a frisbee somewhere, it is.
    assert figures is not None and (figures.mentioned, figures.objects.value) == (3, 0)
    figures = hallucination([*items, item(4, (), "frisbee")], [*captions, said("grass")])
    assert figures is not None
    assert (figures.captions, figures.mentioned) == (4, 4)
    assert figures.objects.value == pytest.approx(1 / 4)
    assert figures.sentences.value == pytest.approx(1 / 4)
    assert next(iter(figures.labels.items())) == ("frisbee", (1, 1))


def test_pictures_without_boxes_are_not_counted():
    items = [item(1, (), "dog"), item(2, ())]
    figures = hallucination(items, [said("a dog"), said("a dog")])
    assert figures is not None and (figures.captions, figures.mentioned) == (1, 1)


def test_nothing_is_measured_for_labels_whose_words_are_not_known():
    assert hallucination([item(1, (), "hat")], [said("a hat")]) is None
    assert hallucination([item(1, ())], [said("a dog")]) is None
    assert hallucination([item(1, (), "dog")], [said("a field")]) is None
