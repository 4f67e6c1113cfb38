"""Hallucination: objects that a caption names although neither the boxes nor the references have them.

CHAIR (Rohrbach et al., Object Hallucination in Image Captioning, 2018): the share of mentioned objects (CHAIRi) and the
share of captions (CHAIRs). Words are matched to categories by `captioner.text.nouns`, whose list is our own. All of
COCO's categories count, also those without a box in these pictures, so a picture counts the same in any part of a set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from captioner.caption import Caption
from captioner.data.caption_set import Item
from captioner.metrics.means import Mean, mean_of
from captioner.text.nouns import COCO_CATEGORIES, SHAPES, mentions
from captioner.text.tokenizer import tokenize


@dataclass(frozen=True)
class Hallucination:
    """Intervals are over images."""

    captions: int  # of pictures with boxes
    mentioned: int  # objects
    objects: Mean  # CHAIRi
    sentences: Mean  # CHAIRs
    labels: dict[str, tuple[int, int]]  # category: mentioned, hallucinated; most hallucinated first


@dataclass(frozen=True)
class MentionedObject:
    """A noun of a caption that names a category of object."""

    label: str
    first: int  # word of the caption; `last` is the one behind the noun
    last: int
    present: bool  # whether the boxes or the references of the picture have the object


def mentioned_objects(items: Sequence[Item], captions: Sequence[Caption]) -> list[list[MentionedObject]] | None:
    """The objects that each caption names; none for a picture without boxes, because it was not annotated.

    None if there are no boxes, or if the words for a label are not known.
    """
    labels = {box.label.lower() for item in items for box in item.boxes}
    categories = next((known for known in (COCO_CATEGORIES, SHAPES) if labels <= known), None)
    if not labels or categories is None:
        return None
    objects: list[list[MentionedObject]] = []
    for item, caption in zip(items, captions, strict=True):
        if not item.boxes:
            objects.append([])
            continue
        present = {box.label.lower() for box in item.boxes}
        for reference in item.captions:
            present |= {mention.label for mention in mentions(tokenize(reference), categories)}
        found = mentions([word.text for word in caption.words], categories)
        objects.append([MentionedObject(m.label, m.first, m.last, m.label in present) for m in found])
    return objects


def hallucination(items: Sequence[Item], captions: Sequence[Caption]) -> Hallucination | None:
    """None if no caption of a picture with boxes names an object, or if the words for a label are not known."""
    objects = mentioned_objects(items, captions)
    if objects is None:
        return None
    per_image = [found for item, found in zip(items, objects, strict=True) if item.boxes]
    share = mean_of([[float(not named.present) for named in found] for found in per_image])
    sentences = mean_of([[float(any(not named.present for named in found))] for found in per_image])
    if share is None or sentences is None:
        return None
    mentioned = Counter(named.label for found in per_image for named in found)
    wrong = Counter(named.label for found in per_image for named in found if not named.present)
    order = sorted(mentioned, key=lambda label: (-wrong[label], -mentioned[label], label))
    return Hallucination(
        len(per_image),
        sum(mentioned.values()),
        share,
        sentences,
        {label: (mentioned[label], wrong[label]) for label in order},
    )
