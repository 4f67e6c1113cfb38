"""Self-critical sequence training (Rennie et al. 2017): sampled captions, weighted by their scores.

    grad = -(r(y) - b) grad log p(y | a),   y ~ p(. | a)

The reward r is CIDEr-D against the training captions of the image, or a weighted sum of CIDEr-D, BLEU-4, METEOR, the
objects that the caption names, and the nouns that it repeats. The baseline b is the reward of the greedy caption, or
the mean reward of the image's other samples (leave one out), which needs no extra decoding. For hard attention the
sampled cells are part of the sample: log p(s | a) has the same weight, times `training.scst.cells`.

The estimate is unbiased: sampling and the pass with gradients both have no dropout and the same temperature, and a
caption of the maximum length ends with probability 1. With `training.scst.dropout` the pass with gradients has dropout:
the estimate is biased, but the model memorizes the training captions less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.metrics.cider import CiderReward
from captioner.metrics.meteor.resources import first_use, load_resources
from captioner.metrics.rewards import BleuReward, MeteorReward, ObjectReward, RepetitionReward
from captioner.model.attention.cell_sampling import gumbel_noise
from captioner.model.caption_decoder import MOSTLY_LIVE, CaptionDecoder, TeacherForced, expand_state
from captioner.model.fast_cpu import sample_categorical
from captioner.model.word_likelihood import log_likelihood
from captioner.terminal import say
from captioner.text.vocabulary import Vocabulary
from captioner.train.box_targets import BoxTargets
from captioner.train.corpus import Corpus
from captioner.train.loss_settings import RewardSettings, SelfCriticalSettings

Captions = list[list[list[int]]]  # B images with K captions each, without the end token
Score = Callable[[Sequence[Sequence[int]], Sequence[int]], NDArray[np.float64]]  # captions, their images -> scores


@dataclass(frozen=True)
class SampledCaptions:
    """K captions for each of B images, with their advantages. The longest caption of each image is first."""

    words: Captions
    cells: Tensor | None  # (B, K, C): the cells that a hard-attention model sampled
    sampled: Tensor | None  # (B, K): whether the context was the sampled cell; otherwise the expectation
    advantages: Tensor  # (B, K): reward - baseline
    mean_reward: float


class SelfCritical:
    """Samples captions, rewards them, and computes the loss from a teacher-forced pass over them."""

    def __init__(
        self,
        settings: SelfCriticalSettings,
        decoder: CaptionDecoder,
        vocabulary: Vocabulary,
        corpus: Corpus,
        boxes: BoxTargets | None = None,
    ) -> None:
        self.settings, self.decoder, self.vocabulary = settings, decoder, vocabulary
        references = [corpus.captions_of(image) for image in range(len(corpus))]
        self.scores = list(_weighted_scores(settings.reward, references, vocabulary, boxes))

    def sample(
        self, annotations: Tensor, images: NDArray[np.int64], sampled: Tensor | None, generator: torch.Generator
    ) -> SampledCaptions:
        """Captions for the images at these positions of the corpus, with their advantages."""
        s = self.settings
        options: dict[str, Any] = {"max_length": s.max_length, "generator": generator}
        words, cells = sample_captions(
            self.decoder,
            annotations,
            self.vocabulary,
            captions=s.samples,
            temperature=s.temperature,
            sampled=sampled,
            **options,
        )
        rewards = self._rewards(words, images)
        baseline = None
        if s.baseline == "greedy":
            greedy, _ = sample_captions(self.decoder, annotations, self.vocabulary, captions=1, greedy=True, **options)
            baseline = self._rewards(greedy, images)
        weights = torch.from_numpy(advantages(rewards, baseline)).float().to(annotations.device)
        return longest_first(SampledCaptions(words, cells, sampled, weights, float(rewards.mean())))

    def loss(self, forced: TeacherForced, samples: SampledCaptions, cells_weight: float) -> Tensor:
        return loss(
            forced,
            samples.advantages.flatten(),
            self.vocabulary,
            max_length=self.settings.max_length,
            temperature=self.settings.temperature,
            cells_weight=cells_weight,
        )

    def _rewards(self, words: Captions, images: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rewards (B, K). Equal captions of an image, which are frequent, are scored once."""
        pairs = [(tuple(caption), int(image)) for image, row in zip(images, words, strict=True) for caption in row]
        number = {pair: n for n, pair in enumerate(dict.fromkeys(pairs))}
        captions, owners = zip(*number, strict=True)
        total = np.asarray(sum(weight * score(captions, owners) for weight, score in self.scores), np.float64)
        return total[[number[pair] for pair in pairs]].reshape(len(words), -1)


def load_meteor() -> None:
    """Read METEOR's files; an error if they are missing."""
    if notice := first_use():
        say(notice)
    load_resources()


def _weighted_scores(
    weights: RewardSettings, references: Captions, vocabulary: Vocabulary, boxes: BoxTargets | None
) -> Iterator[tuple[float, Score]]:
    """The scores that count, and their weights. That of objects has two weights of its own."""
    if weights.cider:
        yield weights.cider, CiderReward(references, end=vocabulary.end)
    if weights.bleu:
        yield weights.bleu, BleuReward(references, end=vocabulary.end)
    if weights.meteor:
        yield weights.meteor, MeteorReward(references, vocabulary)
    if weights.uses_boxes and boxes is not None:
        invented = weights.objects if weights.invented is None else weights.invented
        yield (
            1.0,
            ObjectReward(
                references, vocabulary, boxes.categories, boxes.labels, present=weights.objects, invented=invented
            ),
        )
    if weights.repeats:
        yield weights.repeats, RepetitionReward(vocabulary)


@torch.no_grad()
def sample_captions(
    decoder: CaptionDecoder,
    annotations: Tensor,
    vocabulary: Vocabulary,
    *,
    captions: int,
    max_length: int,
    temperature: float = 1.0,
    greedy: bool = False,
    sampled: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Captions, Tensor | None]:
    """Captions of at most `max_length` words, and the cells (B, K, C) that a hard-attention model sampled.

    `sampled` (B, K) marks the rows that attend to sampled cells; the others use the expectation. Images whose captions
    have all ended leave the batch.
    """
    shared, own = decoder.begin(annotations)
    own, device = expand_state(own, captions), annotations.device
    live = torch.arange(len(annotations), device=device)  # images with a caption that has not ended
    words = torch.full((len(live), captions), vocabulary.start, device=device)
    table = torch.full((len(live), captions, max_length + 1), vocabulary.end, device=device)
    cells = torch.zeros_like(table)
    for time in range(max_length):
        noise = None
        if sampled is not None:
            noise = gumbel_noise((len(live), captions, annotations.shape[1]), generator, device)
        logits, own, attention = decoder.step(shared, own, words, noise=noise, sampled=sampled)
        # half precision has too few values between 0 and 1 to sample from
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits[..., [vocabulary.pad, vocabulary.start, vocabulary.unk]] = -torch.inf
        if greedy:
            following = logits.argmax(-1)
        else:
            following = sample_categorical(torch.softmax(logits / temperature, -1), generator)
        words = torch.where(words == vocabulary.end, vocabulary.end, following)
        table[live, :, time] = words
        if attention.cell is not None:
            cells[live, :, time] = attention.cell
        running = (words != vocabulary.end).any(1)
        if not running.any():
            break
        if running.sum() <= MOSTLY_LIVE * len(live):
            live, words = live[running], words[running]
            shared, own = ({name: tensor[running] for name, tensor in state.items()} for state in (shared, own))
            sampled = None if sampled is None else sampled[running]
    without_end = [[row[: row.index(vocabulary.end)] for row in of_image] for of_image in table.tolist()]
    return without_end, None if sampled is None else cells


def longest_first(samples: SampledCaptions) -> SampledCaptions:
    """The same captions in the order that is fastest for the decoder: it drops a column when all captions in it end."""
    order = np.argsort([[-len(words) for words in of_image] for of_image in samples.words], 1, kind="stable")
    index = torch.from_numpy(order).to(samples.advantages.device)  # (B, K)
    cells, sampled = samples.cells, samples.sampled
    return SampledCaptions(
        [[of_image[k] for k in row] for of_image, row in zip(samples.words, order, strict=True)],
        None if cells is None else cells.gather(1, index.unsqueeze(-1).expand_as(cells)),
        None if sampled is None else sampled.gather(1, index),
        samples.advantages.gather(1, index),
        samples.mean_reward,
    )


def advantages(rewards: NDArray[np.float64], baseline: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Rewards (B, K) minus the greedy caption's reward (B, 1), or minus the mean of the image's other samples."""
    if baseline is not None:
        return rewards - baseline
    others: NDArray[np.float64] = (rewards.sum(1, keepdims=True) - rewards) / (rewards.shape[1] - 1)
    return rewards - others


def loss(
    forced: TeacherForced,
    weights: Tensor,
    vocabulary: Vocabulary,
    *,
    max_length: int,
    temperature: float = 1.0,
    cells_weight: float = 1.0,
) -> Tensor:
    """Mean over captions of -advantage * log p(y [, s] | a), summed over words. `weights` are the B * K advantages."""
    never_sampled = [vocabulary.pad, vocabulary.start, vocabulary.unk]
    log_p, _ = log_likelihood(forced.logits, forced.targets, temperature=temperature, excluded=never_sampled)
    if forced.sampled is not None and forced.cell is not None:
        log_s = torch.log(forced.alpha.gather(1, forced.cell.unsqueeze(1)).squeeze(1).clamp_min(1e-20))
        log_p = log_p + cells_weight * log_s * forced.sampled.to(log_s.dtype)
    free = forced.time < max_length  # the end token after a caption of maximum length was not sampled
    return -(weights[forced.row] * log_p * free).sum() / len(weights)
