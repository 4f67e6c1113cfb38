"""The captions to draw: those of one or several models, found by search or given by the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from captioner.caption import Caption, Failure, Word
from captioner.captioning import Captioner
from captioner.errors import CaptionerError
from captioner.evidence.word_evidence import with_alternatives, with_evidence
from captioner.images.inputs import PictureBytes
from captioner.images.reading import source_name
from captioner.options import SearchOptions

MAX_ALTERNATIVES = 5  # sentences of a page

PerModel = tuple[Caption | Failure, ...]  # one result per model, for one picture


def search_captions(
    captioners: Sequence[Captioner],
    names: Iterable[str | PictureBytes],
    options: dict[str, Any],
    *,
    limits: dict[str, Any],
    with_alternatives: bool = False,
) -> Iterator[PerModel]:
    """Each model's own caption of each picture. With several models, `names` must be a list.

    `limits` are those of `Captioner.stream`: pixel_limit, memory_limit and seconds_per_picture.
    """
    streams = []
    for captioner in captioners:
        own_options = dict(options)
        if with_alternatives and not options.get("sample"):
            beam = options.get("beam", captioner.defaults.beam)
            own_options.setdefault("n_best", min(beam, MAX_ALTERNATIVES))
        results = captioner.stream(names, keep_pictures=True, **limits, **own_options)
        streams.append(_with_cells(captioner, results))
    return zip(*streams, strict=True)


def force_captions(
    captioners: Sequence[Captioner],
    names: Iterable[str | PictureBytes],
    text: str,
    options: dict[str, Any],
    *,
    limits: dict[str, Any],
) -> Iterator[PerModel]:
    """The same sentence about each picture, with each model's maps for it."""
    for captioner in captioners:
        captioner.options(**options)  # reports a wrong option at once, not once per picture

    def forced(captioner: Captioner) -> Iterator[Caption | Failure]:
        for name in names:
            try:
                yield captioner.force(name, text, keep_pictures=True, **limits, **options)
            except CaptionerError as error:
                yield Failure(source_name(name), str(error))

    return zip(*(_with_cells(captioner, forced(captioner)) for captioner in captioners), strict=True)


def examined(
    captioners: Sequence[Captioner],
    results: Iterable[PerModel],
    options: dict[str, Any],
    *,
    evidence: bool = False,
    curves: bool = False,
) -> Iterator[PerModel]:
    """The captions with the likeliest words at each position and, if asked for, with evidence and curves."""
    settings = [captioner.options(**options) for captioner in captioners]

    def with_words(captioner: Captioner, result: Caption | Failure, search: SearchOptions) -> Caption | Failure:
        if not isinstance(result, Caption):
            return result
        try:
            if evidence:
                return with_evidence(captioner, result, search, curves=curves)
            return with_alternatives(captioner, result, search)
        except CaptionerError as error:  # the picture may have been deleted meanwhile
            return Failure(result.picture.name if result.picture else "", str(error))

    for per_model in results:
        yield tuple(with_words(*row) for row in zip(captioners, per_model, settings, strict=True))


def model_labels(models: Sequence[str]) -> list[str]:
    """Names for a comparison: the model's name or that of its folder, numbered where two are the same."""
    labels: list[str] = []
    for model in models:
        label = Path(model).name or model
        count = sum(other == label or other.startswith(f"{label} (") for other in labels)
        labels.append(f"{label} ({count + 1})" if count else label)
    return labels


def with_likeliest_cells(caption: Caption) -> Caption:
    """The caption with the likeliest cell of every word that has none: a hard model that used the expectation."""

    def with_cell(word: Word) -> Word:
        row, col = divmod(int(np.argmax(word.alpha)), word.alpha.shape[1])
        return word if word.cell is not None else replace(word, cell=(row, col))

    alternatives = tuple(with_likeliest_cells(other) for other in caption.alternatives)
    return replace(caption, words=tuple(map(with_cell, caption.words)), alternatives=alternatives)


def is_hard(captioner: Captioner) -> bool:
    return captioner.backend.hard


def _with_cells(captioner: Captioner, results: Iterable[Caption | Failure]) -> Iterator[Caption | Failure]:
    """A hard model's captions show a cell for every word."""
    for result in results:
        yield with_likeliest_cells(result) if is_hard(captioner) and isinstance(result, Caption) else result
