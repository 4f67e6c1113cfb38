"""Validation, always free-running: captions are generated and scored against the raw references."""

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
class Validated:
    """Scores times 100, and the captions they are of, in the split's order."""

    scores: dict[str, float]
    captions: list[str]
    samples: list[Hypothesis]  # the first few, with their attention


def validate(
    backend: TorchBackend, data: CaptionSet, grids: Grids, settings: ValidationSettings, world: World
) -> Validated:
    """Caption every image of `data` once, the work shared out over the world; everyone gets the result."""
    mine = np.arange(world.rank, len(data), world.size)
    found: list[tuple[int, str]] = []
    samples: list[tuple[int, Hypothesis]] = []
    for start in range(0, len(mine), settings.batch):
        batch = mine[start : start + settings.batch]
        for position, hypothesis in zip(batch, caption(backend, grids(batch), settings.search), strict=True):
            found.append((int(position), backend.vocabulary.decode(hypothesis.words)))
            if position < settings.samples:
                samples.append((int(position), hypothesis))
    captions = dict(pair for part in world.gather(found) for pair in part)
    ordered = [captions[i] for i in range(len(data))]
    shown = sorted((pair for part in world.gather(samples) for pair in part), key=lambda pair: pair[0])
    scores = world.gather(_scores(data, ordered) if world.is_main else {})[0]
    return Validated(scores, ordered, [h for _, h in shown])


def caption(backend: TorchBackend, grid: torch.Tensor, how: SearchOptions) -> list[Hypothesis]:
    """The best caption of each cached grid."""
    with torch.inference_mode():
        values = backend.network.annotations(grid.to(backend.device))
    best = search(backend, Annotations(values, backend.rows, backend.cols), how)
    return [hypotheses[0] for hypotheses in best]


def _scores(data: CaptionSet, captions: Sequence[str]) -> dict[str, float]:

    results = {str(item.id): said for item, said in zip(data, captions, strict=True)}
    references = {str(item.id): item.captions for item in data}
    return score(results, references, metrics=("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr")).values
