"""The settings of the terms of the training loss: sampling, hard attention, boxes, rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from captioner.model.settings import Settings


class ScheduledSamplingSettings(Settings):
    """Feed the model its own last word, with a probability that grows each epoch (Bengio et al. 2015)."""

    start_epoch: int = Field(0, ge=0, description="First epoch with sampling. Epochs count from 0.")
    increase: float = Field(
        0.0, ge=0, le=1, description="Added to the probability each epoch, from `start_epoch` on. 0 is no sampling."
    )
    maximum: float = Field(0.25, ge=0, le=1, description="Highest probability.")


class HardSettings(Settings):
    """The loss of hard attention. captioner/model/loss.py has the equations."""

    reward: float = Field(1.0, ge=0, description="lambda_r: weight of the REINFORCE (score-function) term.")
    entropy: float = Field(
        0.002, ge=0, description="lambda_e: weight of the entropy bonus, at the start if `final_entropy` is set."
    )
    final_entropy: float | None = Field(
        None, ge=0, description="Weight of the entropy bonus at the end of training. If absent, it is constant."
    )
    temperature: float | None = Field(
        None,
        gt=0,
        description="Temperature of attention at the start of training. It changes linearly to "
        "`model.attention.temperature` at the end. If absent, it is constant.",
    )
    samples: int = Field(
        1,
        ge=1,
        description="Sequences of cells that are sampled for each caption. From 2 on, the baseline of each one is the "
        "mean of the others (leave-one-out).",
    )
    baseline: float = Field(
        0.9, ge=0, lt=1, description="Decay of the moving-average baseline, which is used with one sample per caption."
    )
    expected: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of captions that use the expectation instead of a sampled cell. Also for gumbel.",
    )

    @model_validator(mode="after")
    def _samples_only(self) -> HardSettings:
        if self.samples > 1 and self.expected > 0:
            raise ValueError(
                f"samples={self.samples} clashes with expected={self.expected}: the expectation has no samples to "
                "compare; set expected=0"
            )
        return self


class GroundingSettings(Settings):
    """Grounded attention: nouns that name objects with boxes (`data.boxes`) train the attention map of their word."""

    weight: float = Field(0.3, ge=0, description="Weight of the loss, at the start if `final_weight` is set.")
    final_weight: float | None = Field(
        None,
        ge=0,
        description="Weight at the end of training; in between it changes linearly. If absent, the weight is constant.",
    )
    final_epoch: int | None = Field(
        None,
        ge=1,
        description="First epoch with the full `final_weight`. Epochs count from 0. If absent, the end of the run.",
    )
    kind: Literal["mass", "spread"] = Field(
        "mass",
        description="`mass`: the share of the attention inside the boxes. `spread`: the cross-entropy with a map that "
        "is even over the boxes.",
    )

    @model_validator(mode="after")
    def _final_epoch_of_a_weight(self) -> GroundingSettings:
        if self.final_epoch is not None and self.final_weight is None:
            raise ValueError("final_epoch needs final_weight: without it the weight is constant")
        return self


class CellCategorySettings(Settings):
    """An auxiliary head that predicts which categories (`data.boxes`) cover each cell. Bundles do not contain it."""

    weight: float = Field(1.0, gt=0, description="Weight of its binary cross-entropy.")
    images: Path | None = Field(
        None,
        description="Folder with images that have boxes but no captions, relative to `data.root`: those that files of "
        "`data.boxes` without val or test in their names list with boxes. Images of the caption files, in any split, "
        "and of files captions_*.json with val or test in their names beside them are left out. Each trains the head "
        "once per epoch. If absent, only images with captions train it.",
    )


class RewardSettings(Settings):
    """The reward of a sampled caption: a weighted sum of scores, most of them against the image's training captions."""

    cider: float = Field(1.0, ge=0, description="Weight of CIDEr-D. A CIDEr-D of 1.05 is usually printed as 105.")
    bleu: float = Field(0.0, ge=0, description="Weight of the smoothed BLEU-4 of the single caption, 0 to 1.")
    meteor: float = Field(0.0, ge=0, description="Weight of METEOR without its paraphrase table, 0 to 1.")
    objects: float = Field(
        0.0,
        ge=0,
        description="Paid for each category that the caption names and `data.boxes` has in the image.",
    )
    invented: float | None = Field(
        None,
        ge=0,
        description="Taken for each category that the caption names and neither `data.boxes` nor the training captions "
        "have in the image. If absent, as `objects`.",
    )
    repeats: float = Field(0.0, ge=0, description="Taken for each noun that the caption repeats.")

    @model_validator(mode="after")
    def _has_a_weight(self) -> RewardSettings:
        if not (self.cider or self.bleu or self.meteor):
            raise ValueError("at least one of cider, bleu and meteor must be above 0")
        return self

    @property
    def uses_boxes(self) -> bool:
        return self.objects > 0 or bool(self.invented)


class SelfCriticalSettings(Settings):
    """Self-critical sequence training (Rennie et al. 2017): sampled captions are rewarded by their scores."""

    start_epoch: int = Field(ge=0, description="First self-critical epoch. Earlier epochs minimize cross-entropy.")
    samples: int = Field(5, ge=1, description="Sampled captions per image.")
    baseline: Literal["greedy", "leave_one_out"] = Field(
        "leave_one_out",
        description="What a reward is compared with: the reward of the greedy caption, or the mean reward of the other "
        "samples of the image.",
    )
    reward: RewardSettings = Field(default_factory=lambda: RewardSettings())
    learning_rate: float = Field(
        5e-5, gt=0, description="Learning rate of the decoder in this stage, constant after a warm-up of 100 steps."
    )
    cells: float | None = Field(
        None,
        ge=0,
        description="Hard attention: weight of log p of the sampled cells beside that of the words. If absent, "
        "`training.hard.reward`.",
    )
    temperature: float = Field(1.0, gt=0, description="Temperature of sampling. Above 1 the samples are more varied.")
    max_length: int = Field(18, ge=2, description="Most words of a sampled caption.")
    references: int = Field(
        1, ge=1, description="Leave out images with fewer captions than this: their rewards are noisy."
    )
    dropout: bool = Field(
        False,
        description="Use dropout in the pass with gradients over the sampled captions. Sampling never has dropout.",
    )

    @model_validator(mode="after")
    def _has_others(self) -> SelfCriticalSettings:
        if self.baseline == "leave_one_out" and self.samples < 2:
            raise ValueError("the leave_one_out baseline needs samples >= 2")
        return self
