"""Weight randomisation: do the maps depend on what the model has learned?

The weights of the decoder are shuffled, each tensor within itself, and the captions are forced on the same pictures
(Adebayo et al., Sanity Checks for Saliency Maps, 2018). Maps that stay the same show the picture, not the model.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from captioner.caption import Caption
from captioner.data.caption_set import Item
from captioner.errors import UsageError
from captioner.evaluation.attention_maps import distance
from captioner.images.reading import load_for_model
from captioner.inference.backend import Backend
from captioner.inference.search import SearchOptions, force
from captioner.metrics.means import Mean, mean_of
from captioner.metrics.rank_correlation import rank_correlation

if TYPE_CHECKING:
    from captioner.inference.torch_backend import TorchBackend

SAME = 0.5  # an alarm is raised above this rank correlation


@dataclass(frozen=True)
class Randomisation:
    """Means are over words, intervals over images."""

    images: int
    words: int
    correlation: Mean  # rank correlation of the maps with and without shuffled weights
    difference: Mean  # total variation distance between them

    @property
    def alarms(self) -> list[str]:
        if self.correlation.value <= SAME:
            return []
        return [
            f"maps hardly depend on the weights: with shuffled weights their rank correlation is "
            f"{self.correlation.value:.2f}. They show the pictures, not what the model has learned."
        ]


def randomisation(
    backend: Backend, items: Sequence[Item], captions: Sequence[Caption], options: SearchOptions, *, seed: int = 0
) -> Randomisation | None:
    """Needs the torch backend. None if the captions have no words."""
    shuffled = _shuffled(backend, seed)
    correlations: list[list[float]] = []
    differences: list[list[float]] = []
    for item, caption in zip(items, captions, strict=True):
        _, pixels = load_for_model(item.path, backend.image_size)
        words = [backend.vocabulary.index.get(word.text, backend.vocabulary.unk) for word in caption.words]
        ((hypothesis,),) = force(shuffled, shuffled.encode(pixels[None]), [[words]], options)
        pairs = [
            (word.alpha.astype(np.float64), alpha.reshape(word.alpha.shape).astype(np.float64))
            for word, alpha in zip(caption.words, hypothesis.alphas, strict=False)  # the end token is not counted
        ]
        ranks = [rank_correlation(one, other) for one, other in pairs]
        # A flat map has no ranks: it has nothing in common with the map of the model.
        correlations.append([0.0 if rank is None else rank for rank in ranks])
        differences.append([distance(one, other) for one, other in pairs])
    correlation, difference = mean_of(correlations), mean_of(differences)
    if correlation is None or difference is None:
        return None
    return Randomisation(len(items), sum(map(len, differences)), correlation, difference)


def check_randomisable(backend: Backend) -> None:
    """Refuse a backend whose weights cannot be shuffled."""
    if not hasattr(backend, "network"):
        raise UsageError("--randomised needs the torch backend: give --backend torch")


def _shuffled(backend: Backend, seed: int) -> TorchBackend:
    check_randomisable(backend)
    import torch

    from captioner.inference.torch_backend import TorchBackend

    assert isinstance(backend, TorchBackend)
    network = copy.deepcopy(backend.network)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.decoder.parameters():
            order = torch.randperm(weights.numel(), generator=random).to(weights.device)
            weights.copy_(weights.flatten()[order].view_as(weights))
    return TorchBackend(network, backend.vocabulary, backend.device, backend.hard_attention)
