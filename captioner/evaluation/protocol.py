"""The protocol: caption every image once, free-running, and score the captions against the raw references.

The references are not used before an image has its caption. Their likelihood is teacher-forced, so it is measured and
reported separately from the scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

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
from captioner.evaluation.hallucination import Hallucination, hallucination
from captioner.evaluation.randomisation import Randomisation, randomisation
from captioner.evaluation.reference_likelihood import ImageSums, Likelihood, likelihood_of, sum_references
from captioner.evaluation.reliance import Reliance, reliance
from captioner.images.decoding import inspect
from captioner.images.reading import Picture, load_for_model
from captioner.inference.backend import Annotations, Backend
from captioner.inference.batching import in_threads
from captioner.inference.search import SearchOptions, caption_of, search
from captioner.metrics.cider import DocumentFrequencies
from captioner.metrics.diversity import Diversity, diversity
from captioner.metrics.text_scores import Scores, score

BATCH = 32


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured. `items` and `captions` have the same order, that of the split."""

    model: str
    attention: str  # soft or hard
    backend: str  # what computed the captions
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
    hallucination: Hallucination | None
    reliance: Reliance | None
    randomisation: Randomisation | None
    not_measured: dict[str, str]  # figure: why it was not measured
    notes: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    seconds: float = 0.0
    timing: dict[str, float] = field(default_factory=dict)

    @property
    def alarms(self) -> list[str]:
        """One sentence for each problem of the attention maps."""
        return [*(self.maps.alarms if self.maps else []), *(self.randomisation.alarms if self.randomisation else [])]


def evaluate(
    model: EvaluatedModel,
    data: EvaluationSet,
    source: AnnotationSource,
    options: SearchOptions,
    *,
    likelihood: bool = True,
    deletions: int = 0,
    occlusions: int = 0,
    randomised: int = 0,
    batch: int = BATCH,
    reference_stats: DocumentFrequencies | None = None,
    progress: Callable[[int], None] = lambda done: None,
    occlusion_progress: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Caption the images and measure.

    `deletions`, `occlusions` and `randomised` are numbers of images for the tests that take most time per image.
    `reference_stats` are document frequencies for CIDEr; by default, those of the references of the split.
    """
    started = time.monotonic()
    captions_by_position, sums, failures = _caption_images(
        model.captioner, data.captions.items, source, options, likelihood, batch, progress
    )
    if not captions_by_position:
        raise CaptionerError(
            f"none of the {len(data.captions):,} pictures could be captioned; the first: {failures[0].reason}"
        )
    positions = sorted(captions_by_position)
    items = tuple(data.captions.items[i] for i in positions)
    captions = tuple(captions_by_position[i] for i in positions)
    captioned = time.monotonic()

    results = {str(item.id): caption.text for item, caption in zip(items, captions, strict=True)}
    scores = score(results, {str(item.id): item.captions for item in items}, reference_stats=reference_stats)
    caption_diversity = diversity([caption.text for caption in captions], data.training)
    assert caption_diversity is not None
    scored = time.monotonic()

    box_figures = _grounding(items, captions) if data.boxed else None
    deletion_figures = _deletion(model.captioner.backend, items[:deletions], captions[:deletions], options)
    backend, threads = model.captioner.backend, model.captioner.threads
    reliance_figures = reliance(
        backend, items[:occlusions], captions[:occlusions], options, threads=threads, progress=occlusion_progress
    )
    randomisation_figures = (
        randomisation(backend, items[:randomised], captions[:randomised], options) if randomised else None
    )
    hallucination_figures = hallucination(items, captions) if data.boxed else None
    not_measured = {}
    if caption_diversity.unseen is None:
        not_measured["captions not in the training set"] = (
            "the data has no train split: give the training captions with --train-captions"
        )
    if not data.boxed:
        not_measured["boxes"] = "no boxes: give them with --boxes"
    elif box_figures is None:
        not_measured["boxes"] = "no caption names a category that has a box in its picture"
    if not deletions:
        not_measured["deletion"] = "not asked for: --deletion N measures it on N images"
    if data.boxed and hallucination_figures is None:
        not_measured["hallucination"] = "no object is named, or the labels of the boxes are not COCO's categories"
    if not occlusions:
        not_measured["reliance"] = "not asked for: --occlusion N measures it on N images"
    if not randomised:
        not_measured["weight randomisation"] = "not asked for: --randomised N measures it on N images"
    if not likelihood:
        not_measured["likelihood"] = "left out (--no-likelihood)"
    finished = time.monotonic()
    return Evaluation(
        model=model.name,
        attention=model.attention,
        backend=model.captioner.backend.name,
        data=data.captions.name,
        split=data.split,
        options=options,
        items=items,
        captions=captions,
        scores=scores,
        diversity=caption_diversity,
        likelihood=likelihood_of(sums) if likelihood else None,
        maps=map_statistics(captions),
        grounding=box_figures,
        deletion=deletion_figures,
        hallucination=hallucination_figures,
        reliance=reliance_figures,
        randomisation=randomisation_figures,
        not_measured=not_measured,
        notes=data.notes,
        failures=tuple(failures),
        seconds=finished - started,
        timing={"captions": captioned - started, "scores": scored - captioned, "attention": finished - scored},
    )


def _caption_images(
    captioner: Captioner,
    items: Sequence[Item],
    source: AnnotationSource,
    options: SearchOptions,
    likelihood: bool,
    batch: int,
    progress: Callable[[int], None],
) -> tuple[dict[int, Caption], list[ImageSums], list[Failure]]:
    """Captions by position in the split, the likelihood sums of the references, and the unreadable pictures."""
    backend = captioner.backend
    references = [[backend.vocabulary.encode(text) for text in item.captions] for item in items] if likelihood else []
    order = list(range(len(items)))
    if likelihood:  # a batch takes as many steps as its longest reference, so similar lengths go together
        order.sort(key=lambda i: max(map(len, references[i])))
    captions: dict[int, Caption] = {}
    sums: list[ImageSums] = []
    failures: dict[int, Failure] = {}

    def work(images: Batch) -> tuple[Batch, dict[int, Caption], list[ImageSums]]:
        if not images.positions:
            return images, {}, []
        annotations = images.encode()
        batch_captions = _captions(backend, images, annotations, options)
        if not likelihood:
            return images, batch_captions, []
        batch_references = [references[i] for i in images.positions]
        return images, batch_captions, sum_references(backend, annotations, batch_references, options)

    done = 0
    batches = source.batches([order[start : start + batch] for start in range(0, len(order), batch)])
    for images, batch_captions, batch_sums in in_threads(work, batches, captioner.threads):
        failures.update(images.failures)
        captions.update(batch_captions)
        sums += batch_sums
        done += len(images.positions) + len(images.failures)
        progress(done)
    return captions, sums, [failures[i] for i in sorted(failures)]


def _captions(backend: Backend, images: Batch, annotations: Annotations, options: SearchOptions) -> dict[int, Caption]:
    n_best_lists = search(backend, annotations, options)
    return {
        position: caption_of(hypotheses[0], backend, picture)
        for position, picture, hypotheses in zip(images.positions, images.pictures, n_best_lists, strict=True)
    }


def with_picture(caption: Caption, item: Item) -> Caption:
    """The caption with its picture. Captions from the feature cache have none."""
    if caption.picture is not None:
        return caption
    return replace(caption, picture=Picture(str(item.path), inspect(item.path), item.path))


def _grounding(items: Sequence[Item], captions: Sequence[Caption]) -> Grounding | None:
    boxed = [(item, with_picture(caption, item)) for item, caption in zip(items, captions, strict=True) if item.boxes]
    frames = [caption.picture.frame for _, caption in boxed if caption.picture]
    nouns, absent = grounded_nouns([caption for _, caption in boxed], [item.boxes for item, _ in boxed], frames)
    return grounding(nouns, absent)


def _deletion(
    backend: Backend, items: Sequence[Item], captions: Sequence[Caption], options: SearchOptions
) -> Deletion | None:
    cases = [
        (load_for_model(item.path, backend.image_size)[1], caption)
        for item, caption in zip(items, captions, strict=True)
    ]
    return deletion(backend, cases, options)
