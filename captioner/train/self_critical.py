"""Self-critical sequence training (Rennie et al. 2017): sampled captions, weighted by what they score.

    grad = -(r(y) - b) grad log p(y | a),   y ~ p(. | a)

r is CIDEr-D against the image's training captions, or a weighted sum of it with BLEU-4 and METEOR. The
baseline b is the reward of the greedy caption, or the mean reward of the image's other samples (leave one
out), which needs no extra decoding. For hard attention the sampled places are part of the sample:
log p(s | a) gets the same weight, times lambda_r. Sampling and the pass with gradients are both without
dropout and at the same temperature, and a caption that has grown to the maximum length ends there for
certain, so that the estimate is unbiased. With `training.scst.dropout` the pass with gradients has dropout:
biased, but the training captions are learnt by heart less.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.metrics.cider import CiderReward
from captioner.metrics.meteor.resources import first_use, load_resources
from captioner.metrics.rewards import BleuReward, MeteorReward
from captioner.model.attention.cell_sampling import gumbel_noise
from captioner.model.caption_decoder import CaptionDecoder, TeacherForced, expand_state
from captioner.model.fast_cpu import sample_categorical
from captioner.text.vocabulary import Vocabulary
from captioner.train.config import RewardSettings, SelfCriticalSettings
from captioner.train.corpus import Corpus

Sentences = list[list[list[int]]]  # B images with K captions each; the end token is not in them
Score = Callable[[Sequence[Sequence[int]], Sequence[int]], NDArray[np.float64]]  # of captions and their images


@dataclass(frozen=True)
class Draws:
    """K captions of each of B images with what they are worth, the longest caption of each image first."""

    words: Sentences
    places: Tensor | None  # (B, K, C): where a hard model looked
    sampled: Tensor | None  # (B, K): whether it looked there, or everywhere by expectation
    advantages: Tensor  # (B, K): reward less baseline
    mean_reward: float


class SelfCritical:
    """Draws captions, rewards them, and turns a teacher-forced pass over them into a loss."""

    def __init__(
        self, settings: SelfCriticalSettings, decoder: CaptionDecoder, vocabulary: Vocabulary, corpus: Corpus
    ) -> None:
        self.settings, self.decoder, self.vocabulary = settings, decoder, vocabulary
        references = [corpus.captions_of(image) for image in range(len(corpus))]
        self.scores = list(_weighted_scores(settings.reward, references, vocabulary))

    def draw(
        self, annotations: Tensor, images: NDArray[np.int64], sampled: Tensor | None, generator: torch.Generator
    ) -> Draws:
        """Samples of the images at these positions of the corpus, with their advantages."""
        s = self.settings
        how: dict[str, Any] = {"max_length": s.max_length, "generator": generator}
        words, places = sample(
            *(self.decoder, annotations, self.vocabulary),
            captions=s.samples,
            temperature=s.temperature,
            sampled=sampled,
            **how,
        )
        rewards = self._rewards(words, images)
        baseline = None
        if s.baseline == "greedy":
            greedy, _ = sample(self.decoder, annotations, self.vocabulary, captions=1, greedy=True, **how)
            baseline = self._rewards(greedy, images)
        weights = torch.from_numpy(advantages(rewards, baseline)).float().to(annotations.device)
        return longest_first(Draws(words, places, sampled, weights, float(rewards.mean())))

    def loss(self, forced: TeacherForced, drawn: Draws, places_weight: float) -> Tensor:
        s = self.settings
        return loss(
            *(forced, drawn.advantages.flatten(), self.vocabulary),
            max_length=s.max_length,
            temperature=s.temperature,
            places_weight=places_weight,
        )

    def _rewards(self, words: Sentences, images: NDArray[np.int64]) -> NDArray[np.float64]:
        flat = [sentence for of_image in words for sentence in of_image]
        owners = [int(image) for image, of_image in zip(images, words, strict=True) for _ in of_image]
        total = sum(weight * score(flat, owners) for weight, score in self.scores)
        return np.asarray(total, np.float64).reshape(len(words), -1)


def load_meteor() -> None:
    """Read METEOR's files, or raise the error that they are missing."""
    if notice := first_use():
        print(notice, file=sys.stderr)
    load_resources()


def _weighted_scores(
    weights: RewardSettings, references: Sentences, vocabulary: Vocabulary
) -> Iterator[tuple[float, Score]]:
    """The scores that count in the reward, with their weights."""
    if weights.cider:
        yield weights.cider, CiderReward(references, end=vocabulary.end)
    if weights.bleu:
        yield weights.bleu, BleuReward(references, end=vocabulary.end)
    if weights.meteor:
        yield weights.meteor, MeteorReward(references, vocabulary)


@torch.no_grad()
def sample(
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
) -> tuple[Sentences, Tensor | None]:
    """Captions of at most `max_length` words, and the places (B, K, C) that a hard model looked at.

    `sampled` (B, K) marks the rows that look at sampled places.
    """
    shared, own = decoder.begin(annotations)
    images, device = len(annotations), annotations.device
    own = expand_state(own, captions)
    words = torch.full((images, captions), vocabulary.start, device=device)
    done = torch.zeros_like(words, dtype=torch.bool)
    said, places = [], []
    for time in range(max_length + 1):
        noise = None
        if sampled is not None:
            noise = gumbel_noise((images, captions, annotations.shape[1]), generator, device)
        logits, own, attention = decoder.step(shared, own, words, noise=noise, sampled=sampled)
        # half precision has too few steps between 0 and 1 to draw from
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits[..., [vocabulary.pad, vocabulary.start, vocabulary.unk]] = -torch.inf
        if greedy:
            words = logits.argmax(-1)
        else:
            p = torch.softmax(logits / temperature, -1)
            words = sample_categorical(p, generator)
        words = torch.where(done | (time == max_length), vocabulary.end, words)
        said.append(words)
        if attention.cell is not None:
            places.append(attention.cell)
        done |= words == vocabulary.end
        if done.all():
            break
    table = torch.stack(said, -1).tolist()
    sentences = [[sentence[: sentence.index(vocabulary.end)] for sentence in of_image] for of_image in table]
    return sentences, torch.stack(places, -1) if places else None


def longest_first(drawn: Draws) -> Draws:
    """The same draws in the order that costs the decoder least: its columns end when all their captions have."""
    order = np.argsort([[-len(words) for words in of_image] for of_image in drawn.words], 1, kind="stable")
    index = torch.from_numpy(order).to(drawn.advantages.device)  # (B, K)
    places, sampled = drawn.places, drawn.sampled
    return Draws(
        [[of_image[k] for k in row] for of_image, row in zip(drawn.words, order, strict=True)],
        None if places is None else places.gather(1, index.unsqueeze(-1).expand_as(places)),
        None if sampled is None else sampled.gather(1, index),
        drawn.advantages.gather(1, index),
        drawn.mean_reward,
    )


def advantages(rewards: NDArray[np.float64], baseline: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Rewards (B, K) less the greedy caption's (B, 1), or less the mean of the image's other samples."""
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
    places_weight: float = 1.0,
) -> Tensor:
    """Mean over captions of -advantage * log p(y [, s] | a), the log summed over words; `weights` are the B * K
    advantages.
    """
    logits = forced.logits.clone()
    logits[:, [vocabulary.pad, vocabulary.start, vocabulary.unk]] = -torch.inf  # as they were sampled
    log_p = torch.log_softmax(logits / temperature, -1).gather(1, forced.targets.unsqueeze(1)).squeeze(1)
    if forced.sampled is not None and forced.cell is not None:
        log_s = torch.log(forced.alpha.gather(1, forced.cell.unsqueeze(1)).squeeze(1).clamp_min(1e-20))
        log_p = log_p + places_weight * log_s * forced.sampled.to(log_s.dtype)
    free = forced.time < max_length  # the end after the last word that fits was not drawn
    return -(weights[forced.row] * log_p * free).sum() / len(weights)
