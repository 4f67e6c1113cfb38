"""Validation: captions are generated, not teacher-forced, and scored against the raw references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from captioner.data.caption_set import CaptionSet
from captioner.inference.backend import Annotations
from captioner.inference.search import Hypothesis, SearchOptions, search
from captioner.inference.torch_backend import TorchBackend
from captioner.metrics.text_scores import score
from captioner.train.config import ValidationSettings
from captioner.train.distributed import World
from captioner.train.grids import Grids


@dataclass(frozen=True)
class ValidationResult:
    """Scores times 100, and the captions in the order of the split."""

    scores: dict[str, float]
    captions: list[str]
    samples: list[Hypothesis]  # of the first images, with their attention


def validate(
    backend: TorchBackend, data: CaptionSet, grids: Grids, settings: ValidationSettings, world: World
) -> ValidationResult:
    """Caption every image of `data` once. The processes share the work, and all of them get the result."""
    positions = np.arange(world.rank, len(data), world.size)
    captions: list[tuple[int, str]] = []
    samples: list[tuple[int, Hypothesis]] = []
    for start in range(0, len(positions), settings.batch):
        batch = positions[start : start + settings.batch]
        for position, hypothesis in zip(batch, caption(backend, grids(batch), settings.search), strict=True):
            captions.append((int(position), backend.vocabulary.decode(hypothesis.words)))
            if position < settings.samples:
                samples.append((int(position), hypothesis))
    by_position = dict(pair for part in world.gather(captions) for pair in part)
    ordered = [by_position[i] for i in range(len(data))]
    all_samples = sorted((pair for part in world.gather(samples) for pair in part), key=lambda pair: pair[0])
    scores = world.gather(_scores(data, ordered) if world.is_main else {})[0]
    return ValidationResult(scores, ordered, [hypothesis for _, hypothesis in all_samples])


def caption(backend: TorchBackend, grid: torch.Tensor, options: SearchOptions) -> list[Hypothesis]:
    """The best caption of each grid."""
    with torch.inference_mode():
        values = backend.network.annotations(grid.to(backend.device))
    best = search(backend, Annotations(values, backend.rows, backend.cols), options)
    return [hypotheses[0] for hypotheses in best]


def _scores(data: CaptionSet, captions: Sequence[str]) -> dict[str, float]:
    results = {str(item.id): caption for item, caption in zip(data, captions, strict=True)}
    references = {str(item.id): item.captions for item in data}
    return score(results, references, metrics=("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr")).values
