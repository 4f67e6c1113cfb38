"""The protocol: every image captioned once, free-running, scored against raw references; likelihood apart.

Nothing here looks at the references before the caption is there. The likelihood of the references is teacher-forced
by its nature and is kept and named apart from the scores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from captioner.caption import Caption, Failure
from captioner.captioning import Captioner
from captioner.data.caption_set import Item
from captioner.errors import CaptionerError
from captioner.evaluation.annotation_sources import AnnotationSource, Batch
from captioner.evaluation.attention_maps import MapStatistics, map_statistics
from captioner.evaluation.deletion import Deletion, deletion
from captioner.evaluation.evaluated_model import EvaluatedModel
from captioner.evaluation.evaluation_set import EvaluationSet
from captioner.evaluation.grounding import Grounding, grounded_nouns, grounding
from captioner.images.decoding import inspect
from captioner.images.reading import Picture, load
from captioner.inference.backend import Annotations, Backend
from captioner.inference.batching import in_threads
from captioner.inference.search import SearchOptions, caption_of, force, search
from captioner.metrics.cider import DocumentFrequencies
from captioner.metrics.diversity import Diversity, diversity
from captioner.metrics.means import Mean, mean
from captioner.metrics.text_scores import Scores, score

BATCH = 32


@dataclass(frozen=True)
class Likelihood:
    """How well the model foresees the references, each word after the true words before it."""

    captions: int
    words: int  # with the end of every caption
    unknown: float  # share of words that the model reads as <unk>, whose probability they get
    perplexity: Mean  # exp of the mean negative log-probability of a word


@dataclass(frozen=True)
class Evaluation:
    """Everything measured. `items` and `captions` go together, in the split's order."""

    model: str
    attention: str  # soft or hard
    data: str
    split: str
    options: SearchOptions
    items: tuple[Item, ...]
    captions: tuple[Caption, ...]
    scores: Scores
    diversity: Diversity
    likelihood: Likelihood | None
    maps: MapStatistics | None
    grounding: Grounding | None
    deletion: Deletion | None
    not_measured: dict[str, str]  # what was not measured, and why
    notes: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    timing: dict[str, float] = field(default_factory=dict)

    @property
    def alarms(self) -> list[str]:
        return self.maps.alarms if self.maps else []


def evaluate(
    model: EvaluatedModel,
    data: EvaluationSet,
    source: AnnotationSource,
    options: SearchOptions,
    *,
    likelihood: bool = True,
    deletions: int = 0,
    batch: int = BATCH,
    reference_stats: DocumentFrequencies | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Caption and measure. `deletions` is the number of images whose places are blanked, which costs most.

    `reference_stats` are CIDEr's document frequencies; by default they are those of the references here.
    """
    began = time.monotonic()
    backend, items = model.captioner.backend, data.captions.items
    captions, sums, failures = _read(model.captioner, items, source, options, likelihood, batch, progress)
    captioned = time.monotonic()
    kept = [i for i in range(len(items)) if i in captions]
    if not kept:
        raise CaptionerError(f"none of the {len(items):,} pictures could be captioned; the first: {failures[0].reason}")
    items, said = tuple(items[i] for i in kept), tuple(captions[i] for i in kept)
    results = {str(item.id): caption.text for item, caption in zip(items, said, strict=True)}
    scores = score(results, {str(item.id): item.captions for item in items}, reference_stats=reference_stats)
    diverse = diversity([caption.text for caption in said], data.training)
    assert diverse is not None
    scored = time.monotonic()

    not_measured = {}
    if diverse.unseen is None:
        not_measured["captions not in the training set"] = (
            "the data has no train split: give the training captions with --train-captions"
        )
    grounded = None
    if data.boxed:
        grounded = _grounding(items, said)
        if grounded is None:
            not_measured["boxes"] = "no caption names a category that has a box in its picture"
    else:
        not_measured["boxes"] = "no boxes: give them with --boxes"
    blanked = None
    if deletions:
        first = zip(items[:deletions], said[:deletions], strict=True)
        cases = [(load(item.path, backend.image_size)[1], caption) for item, caption in first]
        blanked = deletion(backend, cases, options)
    else:
        not_measured["deletion"] = "not asked for: --deletion N blanks pictures of N images"
    if not likelihood:
        not_measured["likelihood"] = "left out (--no-likelihood)"
    now = time.monotonic()
    return Evaluation(
        model=model.name,
        attention=model.attention,
        data=data.captions.name,
        split=data.split,
        options=options,
        items=items,
        captions=said,
        scores=scores,
        diversity=diverse,
        likelihood=_likelihood(sums, backend) if likelihood else None,
        maps=map_statistics(said),
        grounding=grounded,
        deletion=blanked,
        not_measured=not_measured,
        notes=data.notes,
        failures=tuple(failures),
        seconds=now - began,
        timing={"captions": captioned - began, "scores": scored - captioned, "attention": now - scored},
    )


@dataclass(frozen=True)
class _Told:
    """The references of one image as the model sees them: summed log-probability, words, unknown words, captions."""

    log_probability: float
    words: int
    unknown: int
    captions: int


def _read(
    captioner: Captioner,
    items: Sequence[Item],
    source: AnnotationSource,
    options: SearchOptions,
    likelihood: bool,
    batch: int,
    progress: Callable[[int], None],
) -> tuple[dict[int, Caption], list[_Told], list[Failure]]:
    """A caption for every image that can be read, and what the model makes of its references."""
    backend = captioner.backend
    references = [[backend.vocabulary.encode(text) for text in item.captions] for item in items] if likelihood else []
    order = list(range(len(items)))
    if likelihood:  # references of like length together: a batch is as long as its longest
        order.sort(key=lambda i: max(map(len, references[i])))
    captions: dict[int, Caption] = {}
    told: list[_Told] = []
    failures: dict[int, Failure] = {}

    def work(part: Batch) -> tuple[Batch, dict[int, Caption], list[_Told]]:
        if not part.positions:
            return part, {}, []
        annotations = part.encode()
        said = _captions(backend, part, annotations, options)
        some = [references[i] for i in part.positions] if likelihood else []
        return part, said, _told(backend, annotations, some, options) if likelihood else []

    done = 0
    parts = source.batches([order[start : start + batch] for start in range(0, len(order), batch)])
    for part, said, of_them in in_threads(work, parts, captioner.threads):
        failures.update(part.failures)
        captions.update(said)
        told += of_them
        done += len(part.positions) + len(part.failures)
        progress(done)
    return captions, told, [failures[i] for i in sorted(failures)]


def _captions(backend: Backend, part: Batch, annotations: Annotations, options: SearchOptions) -> dict[int, Caption]:
    found = search(backend, annotations, options)
    return {
        i: caption_of(some[0], backend, picture)
        for i, picture, some in zip(part.positions, part.pictures, found, strict=True)
    }


def _told(
    backend: Backend, annotations: Annotations, references: list[list[list[int]]], options: SearchOptions
) -> list[_Told]:
    told = []
    for some in force(backend, annotations, references, options):
        told.append(
            _Told(
                sum(float(each.log_probabilities.sum(dtype=np.float64)) for each in some),
                sum(len(each.log_probabilities) for each in some),
                sum(each.words.count(backend.vocabulary.unk) for each in some),
                len(some),
            )
        )
    return told


def _likelihood(told: Sequence[_Told], backend: Backend) -> Likelihood:
    average = mean([-each.log_probability for each in told], [each.words for each in told])
    assert average is not None
    words = sum(each.words for each in told)
    return Likelihood(
        captions=sum(each.captions for each in told),
        words=words,
        unknown=sum(each.unknown for each in told) / words,
        perplexity=Mean(*(math.exp(x) for x in (average.value, average.low, average.high))),
    )


def pictured(caption: Caption, item: Item) -> Caption:
    """The caption with its picture, which a cached one lacks."""
    if caption.picture is not None:
        return caption
    frame = inspect(item.path)
    return replace(caption, picture=Picture(str(item.path), frame, item.path))


def _grounding(items: Sequence[Item], captions: Sequence[Caption]) -> Grounding | None:
    with_boxes = [(item, pictured(caption, item)) for item, caption in zip(items, captions, strict=True) if item.boxes]
    frames = [caption.picture.frame for _, caption in with_boxes if caption.picture]
    found = grounded_nouns([caption for _, caption in with_boxes], [item.boxes for item, _ in with_boxes], frames)
    return grounding(*found)
