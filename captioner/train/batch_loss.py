"""The loss of one batch: teacher-forced with soft or hard attention, or self-critical."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from captioner.model import loss as objective
from captioner.model.caption_decoder import TeacherForced
from captioner.model.decoder import Decoder
from captioner.model.network import Network
from captioner.text.vocabulary import Vocabulary
from captioner.train.box_targets import BatchBoxes
from captioner.train.cell_categories import CellCategories, cell_category_loss
from captioner.train.checkpoint import TrainingState
from captioner.train.config import TrainingSettings
from captioner.train.corpus import Batch, padded_arrays
from captioner.train.distributed import World
from captioner.train.grounding_loss import grounding_loss
from captioner.train.loss_settings import GroundingSettings
from captioner.train.schedule import annealed, grounding_weight
from captioner.train.self_critical import SelfCritical
from captioner.train.setup import TrainingSetup


class ForwardPass(nn.Module):
    """The teacher-forced pass from grids and captions, as one module for DistributedDataParallel and torch.compile."""

    def __init__(self, network: Network, cell_head: CellCategories | None) -> None:
        super().__init__()
        self.network, self.cell_head = network, cell_head

    def forward(
        self,
        grids: Tensor,
        inputs: Tensor,
        targets: Tensor,
        lengths: Tensor,
        annotations: Tensor | None = None,  # of the grids, if they are known already
        **options: Any,
    ) -> tuple[TeacherForced, Tensor | None]:
        """The pass over the captions, and the logits of the categories of every cell.

        Images without captions come last.
        """
        if annotations is None:
            annotations = self.network.annotations(grids)
        cell_logits = None if self.cell_head is None else self.cell_head(annotations)
        captioned = annotations[: len(inputs)]
        return self.network.decoder(captioned, inputs, targets, lengths, **options), cell_logits


class BatchLoss:
    """Computes the loss of a batch. Updates the baseline of hard attention and the sums of the metrics in `state`."""

    def __init__(
        self,
        setup: TrainingSetup,
        settings: TrainingSettings,
        state: TrainingState,
        world: World,
        generator: torch.Generator,
    ) -> None:
        self.setup, self.settings, self.state, self.world, self.generator = setup, settings, state, world, generator
        self.network = setup.network
        self.self_critical: SelfCritical | None = None  # set when its stage begins
        self.epochs_done = 0.0  # with the part of this epoch; set by the trainer before each batch

    @property
    def progress(self) -> float:
        """Of the run, 0 to 1."""
        return self.epochs_done / self.settings.epochs

    def begin_epoch(self) -> None:
        s = self.settings
        if s.scst and self.state.epoch >= s.scst.start_epoch and self.self_critical is None:
            self.self_critical = SelfCritical(
                s.scst, self.network.decoder, self.setup.vocabulary, self.setup.corpus, self.setup.box_targets
            )
        # New in each epoch: DistributedDataParallel reads only once which parameters are trained.
        # The auxiliary head is there for the encoder only.
        cell_head = None if s.tune.has_ended(self.state.epoch) else self.setup.cell_head
        self.forward_pass: nn.Module = ForwardPass(self.network, cell_head)
        if s.compile:
            self.forward_pass = torch.compile(self.forward_pass, dynamic=True)  # type: ignore[assignment]
        if self.world.size > 1:
            self.forward_pass = DistributedDataParallel(self.forward_pass)
            self.forward_pass.broadcast_buffers = False  # none of the network ever changes

    def __call__(self, batch: Batch, grids: Tensor, boxes: BatchBoxes | None) -> Tensor:
        """The loss of a batch, from the grids of its images and their boxes, if boxes train anything."""
        with self._annealed_temperature():
            if self.self_critical:
                return self._self_critical(self.self_critical, batch, grids, boxes)
            return self._teacher_forced(batch, grids, boxes)

    def weight(self, batch: Batch) -> float:
        """Smaller batches weigh less, so that all captions, or all sampled images, weigh the same."""
        s = self.settings
        size, full_size = batch.captions.size, s.images * s.captions
        if self.self_critical:
            size, full_size = len(batch.images), s.images
        return min(1.0, size * self.world.size / full_size)

    def gradient_sync(self, updates: bool) -> AbstractContextManager[Any]:
        """Processes exchange gradients only before the weights are updated."""
        return nullcontext() if updates or self.world.size == 1 else self.forward_pass.no_sync()  # type: ignore[operator]

    def _teacher_forced(self, batch: Batch, grids: Tensor, boxes: BatchBoxes | None) -> Tensor:
        """Cross-entropy, with the terms of soft or hard attention."""
        s, state, hard = self.settings, self.state, self.settings.hard
        sampling = s.scheduled_sampling
        own_words = min(sampling.maximum, max(0, state.epoch - sampling.start_epoch + 1) * sampling.increase)
        rows = np.repeat(batch.captions, hard.samples, 1) if hard.samples > 1 else batch.captions
        captions = [[self.setup.corpus.caption(number) for number in row] for row in rows]
        self.network.train()
        sampled = self._sampled_rows(rows.shape)
        forced, cell_logits = self._forward(
            grids, captions, word_dropout=s.word_dropout, sampled=sampled, own_words=own_words
        )
        loss = objective.loss(
            forced,
            rows.size,
            label_smoothing=s.label_smoothing,
            doubly_stochastic=s.doubly_stochastic,
            # no reward before there is a baseline
            reward=hard.reward if state.baseline is not None or hard.samples > 1 else 0.0,
            entropy=annealed(hard.entropy, hard.final_entropy, self.progress),
            baseline=state.baseline or 0.0,
            samples=hard.samples,
        )
        log_probability, words = self.world.sum(loss.sampled).tolist()
        if words and hard.samples == 1:
            decay = hard.baseline if state.baseline is not None else 0.0
            state.baseline = decay * (state.baseline or 0.0) + (1 - decay) * log_probability / words
        parts = {"loss": loss.total.detach(), "nll": loss.nll, "words": loss.words}
        parts |= {"coverage": loss.coverage, "entropy": loss.entropy}
        if hard.samples > 1:
            parts["advantage"] = loss.advantage
        state.add(steps=1, **dict(zip(parts, torch.stack([*parts.values()]).tolist(), strict=True)))
        total = loss.total + self._cell_categories(cell_logits, boxes)
        if s.grounding and boxes is not None and self.setup.box_targets:
            groups = self.setup.box_targets.groups_of_captions(self.setup.corpus, rows)
            total = total + self._grounding(s.grounding, forced, groups, boxes)
        return total

    def _self_critical(self, stage: SelfCritical, batch: Batch, grids: Tensor, boxes: BatchBoxes | None) -> Tensor:
        """Sample captions, reward them, and run the decoder over them again with gradients, on the same annotations."""
        grids = grids.to(self.world.device)
        self.network.eval()
        sampled = self._sampled_rows((len(batch.images), stage.settings.samples))
        with self._autocast():
            annotations = self.network.annotations(grids)
            captioned = annotations[: len(batch.images)].detach()
            samples = stage.sample(captioned, batch.images, sampled, self.generator)
        self.network.train(stage.settings.dropout)
        forced, cell_logits = self._forward(
            grids, samples.words, annotations=annotations, sampled=samples.sampled, cells=samples.cells
        )
        self.state.add(steps=1, reward=samples.mean_reward)
        cells = self.settings.hard.reward if stage.settings.cells is None else stage.settings.cells
        total = stage.loss(forced, samples, cells)
        total = total + self._cell_categories(cell_logits, boxes)
        if self.settings.grounding and boxes is not None and self.setup.box_targets:
            texts = [[self.setup.vocabulary.words[n] for n in words] for row in samples.words for words in row]
            groups = self.setup.box_targets.groups_of_texts(np.repeat(batch.images, stage.settings.samples), texts)
            total = total + self._grounding(self.settings.grounding, forced, groups, boxes)
        return total

    def _grounding(
        self, settings: GroundingSettings, forced: TeacherForced, groups: list[NDArray[np.int32]], boxes: BatchBoxes
    ) -> Tensor:
        """The weighted loss of grounded attention, for captions whose words name these groups of boxes."""
        loss, words = grounding_loss(forced, groups, boxes, settings.kind)
        self.state.add(grounding=float(loss.detach()), grounded_words=words)
        return grounding_weight(settings, self.epochs_done, self.settings.epochs) * loss / len(groups)

    def _cell_categories(self, logits: Tensor | None, boxes: BatchBoxes | None) -> Tensor | float:
        """The weighted loss of the auxiliary head, if there is one."""
        if logits is None or boxes is None or self.settings.cell_categories is None:
            return 0.0
        labels = boxes.cell_labels(len(logits), logits.shape[-1])
        loss = cell_category_loss(logits, *(torch.from_numpy(array).to(logits.device) for array in labels))
        self.state.add(cell_categories=float(loss.detach()))
        return self.settings.cell_categories.weight * loss

    def _forward(
        self, grids: Tensor, captions: Any, *, word_dropout: float = 0.0, **options: Any
    ) -> tuple[TeacherForced, Tensor | None]:
        device, vocabulary = self.world.device, self.setup.vocabulary
        batch = [torch.from_numpy(array).to(device) for array in padded_arrays(captions, vocabulary)]
        if word_dropout:
            batch[0] = drop_words(batch[0], word_dropout, vocabulary, self.generator)
        with self._autocast():
            forced, cell_logits = self.forward_pass(grids.to(device), *batch, generator=self.generator, **options)
        return replace(forced, alpha=forced.alpha.float()), cell_logits

    @contextmanager
    def _annealed_temperature(self) -> Iterator[None]:
        """The temperature of hard attention at this point of training. Validation uses that of the model."""
        decoder, first = self.network.decoder, self.settings.hard.temperature
        if first is None or not isinstance(decoder, Decoder):
            yield
            return
        last = decoder.settings.attention.temperature
        decoder.set_temperature(annealed(first, last, self.progress))
        try:
            yield
        finally:
            decoder.set_temperature(last)

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.settings.precision)
        return torch.autocast(self.world.device.type, dtype=kind) if kind else nullcontext()

    def _sampled_rows(self, shape: tuple[int, ...]) -> Tensor | None:
        """Hard attention: the captions that attend to sampled cells. The others use the expectation."""
        if not self.network.decoder.hard:
            return None
        uniform = torch.rand(shape, generator=self.generator, device=self.world.device)
        return uniform >= self.settings.hard.expected


def drop_words(inputs: Tensor, share: float, vocabulary: Vocabulary, generator: torch.Generator) -> Tensor:
    """The input words (B, K, C), a random share of them replaced by the unknown word. The start token stays."""
    uniform = torch.rand(inputs.shape, generator=generator, device=inputs.device)
    return torch.where((uniform < share) & (inputs != vocabulary.start), vocabulary.unk, inputs)
