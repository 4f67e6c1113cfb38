"""The trainer: teacher-forced captions with soft or hard attention, then optionally the self-critical stage.

`Trainer.run` and `Trainer._train_epoch` are the training loop, in the order things happen. What changes during a run
is in the network, the optimizer, the EMA and `TrainingState`, and all of it is in the checkpoint. Random numbers come
from generators seeded by (seed, epoch, position), and for dropout from torch's global generator, whose state is in the
checkpoint too. So a run that was killed and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captioner.errors import CaptionerError
from captioner.files.atomic import sweep, write_atomically
from captioner.inference.torch_backend import TorchBackend
from captioner.model.weights import ENCODER_PREFIX
from captioner.train import checkpoint, run_warnings, schedule
from captioner.train import config_file as configs
from captioner.train.batch_loss import BatchLoss
from captioner.train.box_targets import BatchBoxes
from captioner.train.checkpoint import TrainingState
from captioner.train.config import Config, sized
from captioner.train.corpus import Batch, plan_epoch, spread
from captioner.train.distributed import World
from captioner.train.ema import EMA
from captioner.train.epoch_timer import EpochTimer
from captioner.train.grids import read_ahead
from captioner.train.interrupt import Interrupt, interruptible
from captioner.train.loaded_run import write_best
from captioner.train.logger import Logger
from captioner.train.run_folder import RunFolder
from captioner.train.self_critical import load_meteor
from captioner.train.setup import InitialWeights, make_optimizer, prepare
from captioner.train.splits import write_split_record
from captioner.train.validation import validate
from captioner.workarounds.half_precision import check_precision, resolve_precision
from captioner.workarounds.malloc import keep_memory, use_one_arena

LOG_EVERY = 50  # steps
_NO_DIGITS = str.maketrans("", "", "0123456789.,")


def train(config: Config, folder: Path, world: World, *, resume: bool = False) -> TrainingState:
    """Train into a run folder until the last epoch, early stopping, or Ctrl-C, which saves a checkpoint."""
    precision = resolve_precision(config.training.precision, world.device.type)
    config = config.model_copy(update={"training": config.training.model_copy(update={"precision": precision})})
    check_precision(precision, world.device.type)
    if config.training.scst and config.training.scst.reward.meteor:
        load_meteor()  # fails now, not after the first epochs, if its files are missing
    if world.device.type == "cpu":
        use_one_arena()
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    torch.manual_seed(config.seed)
    trainer = Trainer(config, folder, world, resume)  # may encode pictures
    if world.device.type == "cpu":
        keep_memory()
    try:
        with interruptible() as interrupt:
            trainer.run(interrupt)
    except OSError as error:  # a full disk, or a folder that was removed
        raise CaptionerError(f"step {trainer.state.step}: {error}; {trainer.last_good_checkpoint()}") from error
    finally:
        trainer.logger.close()
    return trainer.state


class Trainer:
    def __init__(self, config: Config, folder: Path, world: World, resume: bool) -> None:
        self.run_folder, self.world = RunFolder(folder), world
        saved, saved_state = checkpoint.read(self.run_folder.checkpoint) if resume else ({}, {})
        weights = InitialWeights.of_checkpoint(self.run_folder, saved) if resume else None
        self.setup = prepare(config, world, weights)
        self.warned: set[str] = set()
        config = self.config = sized(config, len(self.setup.corpus))
        self.settings = config.training
        self.network, self.vocabulary = self.setup.network, self.setup.vocabulary
        self.optimizer = make_optimizer(config, self.setup)
        self.ema = EMA(self.setup.trainable, self.settings.ema)
        self.generator = torch.Generator(device=world.device)  # for sampling: cells, words, captions
        float16 = self.settings.precision == "float16" and world.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(enabled=float16)
        self.state = self._restore(saved, saved_state) if resume else TrainingState()
        self.saved_step = self.state.step
        self.batch_loss = BatchLoss(self.setup, self.settings, self.state, world, self.generator)
        if world.is_main:
            sweep(folder)
            sweep(self.run_folder.best_weights.parent)
            if self.setup.division is not None:
                write_split_record(self.run_folder.split, self.setup.division)
            write_atomically(self.run_folder.config, configs.dump(config))  # a resumed run may have changed settings
            if not resume:
                self.vocabulary.save(self.run_folder.vocabulary)
        if not resume:
            if world.rank:  # the same weights in all processes, but different dropout
                torch.manual_seed(_seed(config.seed, world.rank))
            self._save()
        self.logger = Logger(self.run_folder, self.state.step, validated=self.state.position == 0, writes=world.is_main)

    # --- the training loop ---------------------------------------------------------------------------

    def run(self, interrupt: Interrupt) -> None:
        s, state = self.settings, self.state
        while state.epoch < s.epochs and not self._has_stopped_improving():
            self._train_epoch(interrupt)
            state.epoch, state.position = state.epoch + 1, 0
            if state.epoch % s.validation.every == 0 or state.epoch == s.epochs:
                self._validate()
            self._save()
        if self._has_stopped_improving():
            self.logger.info(f"no better {s.validation.score} for {state.waiting} validations: stopped")
        if self.world.is_main:
            self._warn(run_warnings.after_training(s, self.run_folder.read_metrics()))
        best = f"best {s.validation.score} {state.best:.1f} after epoch {state.best_epoch}"
        self.logger.info(f"done: {best}, in {self.run_folder.best_weights.parent}")

    def _train_epoch(self, interrupt: Interrupt) -> None:
        s, state = self.settings, self.state
        self._begin_epoch()
        batches = self._plan_epoch()
        self._warn(run_warnings.before_training(s, len(batches)))
        with EpochTimer(self.world, state, s.epochs, len(batches)) as timer:
            for batch, grids, boxes in self._read_batches(batches):
                with timer.step(batch.captions.size):
                    self.generator.manual_seed(_seed(self.config.seed, state.epoch, state.position, self.world.rank))
                    self._set_learning_rate(len(batches))
                    self.batch_loss.epochs_done = state.epoch + state.position / len(batches)
                    updates = (state.position + 1) % s.accumulate == 0 or state.position + 1 == len(batches)
                    with self.batch_loss.gradient_sync(updates):
                        loss = self.batch_loss(batch, grids, boxes)
                        scaled = self.scaler.scale(loss * self.batch_loss.weight(batch) / s.accumulate)
                        scaled.backward()  # type: ignore[no-untyped-call]
                    mean_loss = self._finite("loss", float(self.world.sum(loss.detach())) / self.world.size)
                    if updates:
                        self._clip_gradient()
                        self.scaler.step(self.optimizer)
                        self.scaler.update()
                        self.optimizer.zero_grad(set_to_none=True)
                        self.ema.update(state.step)
                    state.step += 1
                    state.position += 1
                    state.stage_steps += self.batch_loss.self_critical is not None
                timer.show(mean_loss)
                if state.position % LOG_EVERY == 0 or state.position == len(batches):
                    self._log_metrics(len(batches))
                if not updates:
                    continue  # a checkpoint does not hold gradients
                if self.world.any(interrupt.requested):
                    self._save()
                    resume = f"captioner train --resume {self.run_folder.path}"
                    raise CaptionerError(f"stopped and saved at step {state.step}; to resume: {resume}")
                if state.step - self.saved_step >= s.checkpoint_every:
                    self._save()
        timer.log(self.logger)

    # --- before the batches of an epoch --------------------------------------------------------------

    def _has_stopped_improving(self) -> bool:
        """Early stopping."""
        patience = self.settings.validation.patience
        return patience is not None and self.state.waiting >= patience

    def _begin_epoch(self) -> None:
        """The parts of training that begin or end with an epoch."""
        tune, epoch = self.settings.tune, self.state.epoch
        for parameter in self.setup.tail:
            parameter.requires_grad_(epoch >= tune.start_epoch)
        if tune.has_ended(epoch):
            of_encoder = [name for name in self.setup.trainable if name.startswith(ENCODER_PREFIX)]
            self.ema.adopt(of_encoder)
            for name in of_encoder:
                self.setup.trainable[name].requires_grad_(False)
        self.batch_loss.begin_epoch()

    def _plan_epoch(self) -> list[Batch]:
        references = self.batch_loss.self_critical.settings.references if self.batch_loss.self_critical else 1
        batches = plan_epoch(
            self.setup.corpus,
            images=self.settings.images,
            captions=self.settings.captions,
            seed=self.config.seed,
            epoch=self.state.epoch,
            world_size=self.world.size,
            references=references,
        )
        if not batches:
            raise CaptionerError(f"no training image has {references} captions (training.scst.references)")
        return batches

    def _read_batches(self, batches: list[Batch]) -> Iterator[tuple[Batch, Tensor, BatchBoxes | None]]:
        """The rest of the epoch: this process's part of each batch, its grids and boxes, which are read ahead.

        The grids and boxes of images without captions come after those of the batch.
        """
        epoch, first, rank = self.state.epoch, self.state.position, self.world.rank
        encoder_is_trained = not self.settings.tune.has_ended(epoch)
        uncaptioned = self.setup.uncaptioned if encoder_is_trained else range(0)
        parts = spread(uncaptioned, len(batches), seed=self.config.seed, epoch=epoch)

        def fetch(i: int) -> tuple[Batch, Tensor, BatchBoxes | None]:
            batch = batches[first + i].for_process(rank, self.world.size)
            rng = np.random.default_rng([self.config.seed, epoch, first + i, rank, 0xF1])
            part = parts[first + i]
            part = part[: len(part) - len(part) % self.world.size]  # as many for each process
            images = np.concatenate([batch.images, part[rank :: self.world.size]])
            augmented = self.setup.train_grids.augmented(images, rng)
            targets = self.setup.box_targets
            return batch, augmented.grids, targets.batch(images, augmented.views) if targets else None

        return read_ahead(fetch, len(batches) - first)

    # --- one batch -----------------------------------------------------------------------------------

    def _set_learning_rate(self, steps: int) -> None:
        rate = schedule.learning_rate(
            self.settings, self.state, steps, self_critical=self.batch_loss.self_critical is not None
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["lr_factor"]

    def _clip_gradient(self) -> None:
        self.scaler.unscale_(self.optimizer)
        head = self.setup.cell_head.parameters() if self.setup.cell_head else ()
        parameters = [x for x in (*self.setup.trainable.values(), *head) if x.grad is not None]
        norm = float(nn.utils.clip_grad_norm_(parameters, self.settings.optimizer.clip or math.inf))
        if math.isfinite(norm) or not self.scaler.is_enabled():  # the scaler itself skips updates that overflow
            self.state.add(gradient=self._finite("gradient", norm), updates=1)

    def _finite(self, name: str, value: float) -> float:
        if not math.isfinite(value):
            state, rate = self.state, self.optimizer.param_groups[0]["lr"]
            raise CaptionerError(
                f"the {name} became {value} at step {state.step} (epoch {state.epoch + 1}, learning rate {rate:.2e}); "
                f"{self.last_good_checkpoint()}"
            )
        return value

    # --- validation, metrics, checkpoints ------------------------------------------------------------

    def _validate(self) -> None:
        s, state = self.settings.validation, self.state
        began = time.monotonic()
        with self.ema.swapped_in():
            backend = TorchBackend(self.network, self.vocabulary, self.world.device)
            settings = s.model_copy(update={"search": self.config.decoding})
            result = validate(backend, self.setup.val_set, self.setup.val_grids, settings, self.world)
            if result.scores[s.score] > state.best:
                state.best, state.best_epoch, state.waiting = result.scores[s.score], state.epoch, 0
                if self.world.is_main:
                    best = {"epoch": state.epoch, "step": state.step, "scores": result.scores}
                    best["images"] = len(self.setup.val_set)
                    write_best(self.run_folder, self.network, best)
            else:
                state.waiting += 1
                state.plateaus += state.waiting % (self.settings.schedule.patience + 1) == 0
        scores = ", ".join(f"{name} {value:.1f}" for name, value in result.scores.items())
        mark = " (best)" if state.waiting == 0 else ""
        self.logger.info(f"epoch {state.epoch}: {scores}{mark}, {time.monotonic() - began:.0f} s")
        self.logger.metrics(state.step, epoch=state.epoch, validation=result.scores)
        self.logger.samples(state.step, self.setup.val_set, result.samples, backend)
        if self.world.is_main:
            rows = self.run_folder.read_metrics()
            course = [row["validation"][s.score] for row in rows if "validation" in row]
            self._warn(run_warnings.of_scores(self.settings, course))

    def _log_metrics(self, steps: int) -> None:
        """One row of metrics: means since the last row, over all processes."""
        state = self.state
        sums, state.sums = self.world.sums(state.sums), {}
        row: dict[str, float] = {
            "epoch": round(state.epoch + state.position / steps, 4),
            "rate": self.optimizer.param_groups[0]["lr"],
        }
        if "words" in sums:
            row["nll"] = sums.pop("nll") / sums.pop("words")  # per word, without label smoothing
        if "updates" in sums:
            row["gradient"] = sums.pop("gradient") / sums.pop("updates")
        if words := sums.pop("grounded_words", 0):
            row["grounding"] = sums.pop("grounding") / words  # per word that names boxes
        count = sums.pop("steps")
        row |= {name: value / count for name, value in sums.items()}
        if state.baseline is not None:
            row["baseline"] = state.baseline
        self.logger.metrics(state.step, **row)
        self._warn(run_warnings.of_metrics(self.settings, row))

    def _warn(self, sentences: Iterable[str]) -> None:
        """Print each warning once; its figures may differ the next time."""
        for sentence in sentences:
            kind = sentence.translate(_NO_DIGITS)
            if kind not in self.warned:
                self.warned.add(kind)
                self.logger.info(f"warning: {sentence}")

    def _save(self) -> None:
        rng = self.world.gather(checkpoint.rng_tensors(self.world.device))
        if self.world.is_main:
            saved = checkpoint.prefixed("network", self.network.state_dict())
            if self.setup.cell_head is not None:
                saved |= checkpoint.prefixed("cell_head", self.setup.cell_head.state_dict())
            saved |= checkpoint.prefixed("average", self.ema.tensors)
            saved |= checkpoint.prefixed("optimizer", checkpoint.optimizer_tensors(self.optimizer))
            for rank, states in enumerate(rng):
                saved |= checkpoint.prefixed(checkpoint.rng_prefix(rank), states)
            checkpoint.write(
                self.run_folder.checkpoint, saved, asdict(self.state) | {"scaler": self.scaler.state_dict()}
            )
        self.saved_step = self.state.step
        self.world.barrier()

    def _restore(self, saved: dict[str, Tensor], state: dict[str, Any]) -> TrainingState:
        """Everything but the weights of the network, which `prepare` needs earlier."""
        try:
            return self._restore_parts(saved, state)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CaptionerError(
                f"{self.run_folder.checkpoint} is damaged, or was written by another version "
                f"({type(error).__name__}: {error})"
            ) from error

    def _restore_parts(self, saved: dict[str, Tensor], state: dict[str, Any]) -> TrainingState:
        checkpoint.restore_optimizer(self.optimizer, checkpoint.part(saved, "optimizer"))
        self.ema.restore(checkpoint.part(saved, "average"))
        rng = checkpoint.part(saved, checkpoint.rng_prefix(self.world.rank))
        if rng or self.world.is_main:
            checkpoint.restore_rng(self.world.device, rng)
        else:  # the checkpoint was written by fewer processes
            torch.manual_seed(_seed(self.config.seed, int(state["step"]), self.world.rank))
        self.scaler.load_state_dict(state.pop("scaler"))
        return TrainingState(**state)

    def last_good_checkpoint(self) -> str:
        return f"the last good checkpoint is {self.run_folder.checkpoint}"


def _seed(*parts: int) -> int:
    """One seed from several numbers, for a torch generator."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
