"""The training loop: teacher-forced captions, soft or hard, then optionally the self-critical stage.

Read top-down: `train` opens a run, `Trainer.run` walks epochs and steps, `Trainer._step` is one batch. All that
changes as it goes is in `TrainingState`, the network, the optimiser and the average, and goes into the
checkpoint. What is random is drawn from generators seeded by (seed, epoch, step), and dropout from torch's
own, which the checkpoint holds: a run that was killed ends with the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from captioner.errors import CaptionerError
from captioner.files.atomic import sweep, write_atomically
from captioner.inference.torch_backend import TorchBackend
from captioner.model import loss as objective
from captioner.model.caption_decoder import TeacherForced
from captioner.model.network import Network
from captioner.progress import ProgressBar, duration
from captioner.text.vocabulary import Vocabulary
from captioner.train import checkpoint, schedule
from captioner.train import config as configs
from captioner.train.config import Config
from captioner.train.corpus import StepPlan, plan, tensors
from captioner.train.distributed import World
from captioner.train.ema import EMA
from captioner.train.interrupt import Interrupt, interruptible
from captioner.train.logger import Logger
from captioner.train.run_folder import Keeper, TrainingState
from captioner.train.self_critical import SelfCritical, load_meteor
from captioner.train.setup import InitialWeights, make_optimizer, prepare
from captioner.train.validation import validate
from captioner.workarounds.half_precision import check_precision
from captioner.workarounds.malloc import keep_memory

LOG_EVERY = 50  # steps


class ForwardPass(nn.Module):
    """A teacher-forced pass as one module, so that DistributedDataParallel sees one forward."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        grid: Tensor,
        inputs: Tensor,
        targets: Tensor,
        lengths: Tensor,
        annotations: Tensor | None = None,  # the grid's, where they have been made already
        **how: Any,
    ) -> TeacherForced:
        if annotations is None:
            annotations = self.network.annotations(grid)
        return self.network.decoder(annotations, inputs, targets, lengths, **how)  # type: ignore[no-any-return]


def train(config: Config, folder: Path, world: World, *, resume: bool = False) -> TrainingState:
    """Train into a run folder until the last epoch, early stopping, or Ctrl-C, which saves."""
    check_precision(config.training.precision, world.device.type)
    if config.training.scst and config.training.scst.reward.meteor:
        load_meteor()  # before the first epoch: its files may be missing
    if world.device.type == "cpu":
        keep_memory()
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    torch.manual_seed(config.seed)
    trainer = Trainer(config, folder, world, resume)
    try:
        with interruptible() as interrupt:
            trainer.run(interrupt)
    except OSError as error:  # a full disk, or a folder that went away
        raise CaptionerError(f"step {trainer.state.step}: {error}; {trainer.keeper.last_good()}") from error
    finally:
        trainer.logger.close()
    return trainer.state


class Trainer:
    def __init__(self, config: Config, folder: Path, world: World, resume: bool) -> None:
        self.config, self.settings, self.folder, self.world = config, config.training, folder, world
        last = folder / checkpoint.LAST
        held, state = checkpoint.read(last) if resume else ({}, {})
        words = folder / "vocabulary.json"
        origin = InitialWeights(Vocabulary.load(words), checkpoint.part(held, "network"), last) if resume else None
        self.setup = prepare(config, world, origin)
        self.network, self.vocabulary = self.setup.network, self.setup.vocabulary
        self.optimizer = make_optimizer(config, self.setup)
        self.ema = EMA(self.setup, self.settings.ema)
        self.generator = torch.Generator(device=world.device)
        self.scaler = torch.amp.GradScaler(enabled=self.settings.precision == "float16" and world.device.type == "cuda")
        self.keeper = Keeper(folder, world, self.network, self.optimizer, self.ema, self.scaler)
        self.state = self.keeper.restore(held, state) if resume else TrainingState()
        self.critic: SelfCritical | None = None
        if world.is_main:
            sweep(folder)
            write_atomically(folder / "config.yaml", configs.dump(config))  # a resumed run may have changed it
            if not resume:
                self.vocabulary.save(words)
        if not resume:
            self._save()
        if world.rank:  # same weights everywhere, other dropout
            torch.manual_seed(_seed(config.seed, self.state.step, world.rank))
        p = self.state
        self.logger = Logger(folder, p.step, validated=p.position == 0, writes=world.is_main)

    def run(self, interrupt: Interrupt) -> None:
        s, p = self.settings, self.state
        while p.epoch < s.epochs and not self._stands_still():
            self._epoch(interrupt)
            p.epoch, p.position = p.epoch + 1, 0
            if p.epoch % s.validation.every == 0 or p.epoch == s.epochs:
                self._validate()
            self._save()
        if self._stands_still():
            self.logger.info(f"no better {s.validation.score} for {p.waiting} validations: stopped")
        best = f"best {s.validation.score} {p.best:.1f} after epoch {p.best_epoch}"
        self.logger.info(f"done: {best}, in {self.folder / 'best'}")

    def _stands_still(self) -> bool:
        """Early stopping: the score has not risen for as long as is configured."""
        patience = self.settings.validation.patience
        return patience is not None and self.state.waiting >= patience

    def _epoch(self, interrupt: Interrupt) -> None:
        s, p = self.settings, self.state
        self._enter_epoch()
        steps = self._plan()
        first, captions, inside = p.position, 0, 0.0
        bar = ProgressBar(total=len(steps), plain_every=100) if self.world.is_main else None
        began = time.monotonic()
        try:
            for step_plan, grid in self._batches(steps[first:], first):
                now = time.monotonic()
                value = self._step(step_plan, grid, len(steps))
                inside += time.monotonic() - now
                captions += step_plan.captions.size
                spent = time.monotonic() - began
                if bar:
                    text = f"epoch {p.epoch + 1}/{s.epochs}, loss {value:.2f}, {captions / spent:.0f} captions/s"
                    bar.show(p.position, text=text)
                if p.position % LOG_EVERY == 0 or p.position == len(steps):
                    self._log(len(steps))
                if p.position % s.accumulate and p.position < len(steps):
                    continue  # gradients are pending, which a checkpoint doesn't hold
                if self.world.any(interrupt.asked):
                    self._save()
                    raise CaptionerError(
                        f"stopped at step {p.step}, saved; go on with: captioner train --resume {self.folder}"
                    )
                if p.step - self.keeper.saved >= s.checkpoint_every:
                    self._save()
        finally:
            if bar:
                bar.clear()
        rate = captions * self.world.size / max(spent, 1e-9) if captions else 0.0
        outside = 1 - inside / spent if captions else 0.0  # not in forward, backward and optimiser
        self.logger.timing(
            epoch=p.epoch + 1,
            steps=len(steps) - first,
            seconds=round(spent, 2) if captions else 0.0,
            captions_per_second=round(rate, 2),
            outside_share=round(outside, 4),
        )
        if captions:
            self.logger.info(f"epoch {p.epoch + 1}: {duration(spent)}, {rate:.0f} captions/s")

    # --- one batch -----------------------------------------------------------------------------------

    def _step(self, step_plan: StepPlan, grid: Tensor, steps: int) -> float:
        """Loss, gradients and, when enough have been added up, the optimiser's step."""
        s, p = self.settings, self.state
        self.generator.manual_seed(_seed(self.config.seed, p.epoch, p.position, self.world.rank))
        rate = self._set_rate(steps)
        moves = (p.position + 1) % s.accumulate == 0 or p.position + 1 == steps
        held = nullcontext() if moves or self.world.size == 1 else self.forward_pass.no_sync()  # type: ignore[operator]
        with held:
            total = self._critical_loss(step_plan, grid) if self.critic else self._loss(step_plan, grid)
            self.scaler.scale(total * self._share(step_plan) / s.accumulate).backward()  # type: ignore[no-untyped-call]
        value = float(self.world.total(total.detach())) / self.world.size
        self._check("loss", value, rate)
        if moves:
            self.scaler.unscale_(self.optimizer)
            learning = [x for x in self.setup.learnt.values() if x.grad is not None]
            norm = float(nn.utils.clip_grad_norm_(learning, s.optimizer.clip or math.inf))
            if math.isfinite(norm) or not self.scaler.is_enabled():  # the scaler itself skips steps that overflow
                self._check("gradient", norm, rate)
                self._add(gradient=norm, updates=1)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.ema.update(p.step)
        p.step += 1
        p.position += 1
        p.stage_steps += self.critic is not None
        return value

    def _share(self, step_plan: StepPlan) -> float:
        """Smaller steps (see corpus.plan) weigh less: every caption, or every image sampled from, weighs the same."""
        s = self.settings
        size, whole = step_plan.captions.size, s.images * s.captions
        if self.critic:
            size, whole = len(step_plan.images), s.images
        return min(1.0, size * self.world.size / whole)

    def _check(self, what: str, value: float, rate: float) -> None:
        p = self.state
        if not math.isfinite(value):
            raise CaptionerError(
                f"the {what} became {value} at step {p.step} (epoch {p.epoch + 1}, learning rate {rate:.2e}); "
                f"{self.keeper.last_good()}"
            )

    def _loss(self, step_plan: StepPlan, grid: Tensor) -> Tensor:
        """Teacher forcing: the soft or the hard objective."""
        s, p, hard = self.settings, self.state, self.settings.hard
        sampling = s.scheduled_sampling
        own_words = min(sampling.maximum, max(0, p.epoch - sampling.start_epoch + 1) * sampling.increase)
        sentences = [[self.setup.corpus.caption(c) for c in row] for row in step_plan.captions]
        self.network.train()
        forced = self._read(grid, sentences, sampled=self._sampled_rows(step_plan.captions.shape), own_words=own_words)
        found = objective.loss(
            forced,
            step_plan.captions.size,
            label_smoothing=s.label_smoothing,
            doubly_stochastic=s.doubly_stochastic,
            reward=hard.reward if p.baseline is not None else 0.0,  # no reward before there is a baseline
            entropy=hard.entropy,
            baseline=p.baseline or 0.0,
        )
        said, words = self.world.total(found.sampled).tolist()
        if words:
            decay = hard.baseline if p.baseline is not None else 0.0
            p.baseline = decay * (p.baseline or 0.0) + (1 - decay) * said / words
        parts = {"loss": found.total.detach(), "nll": found.nll, "words": found.words}
        parts |= {"coverage": found.coverage, "entropy": found.entropy}
        self._add(steps=1, **dict(zip(parts, torch.stack([*parts.values()]).tolist(), strict=True)))
        return found.total

    def _critical_loss(self, step_plan: StepPlan, grid: Tensor) -> Tensor:
        """Self-critical: captions sampled, rewarded, and read again with gradients, from the same annotations."""
        assert self.critic is not None
        grid = grid.to(self.world.device)
        self.network.eval()
        sampled = self._sampled_rows((len(step_plan.images), self.critic.settings.samples))
        with self._autocast():
            annotations = self.network.annotations(grid)
            drawn = self.critic.draw(annotations.detach(), step_plan.images, sampled, self.generator)
        self.network.train(self.critic.settings.dropout)
        forced = self._read(grid, drawn.words, annotations=annotations, sampled=drawn.sampled, cells=drawn.places)
        self._add(steps=1, reward=drawn.mean_reward)
        return self.critic.loss(forced, drawn, self.settings.hard.reward)

    def _read(self, grid: Tensor, sentences: Any, **how: Any) -> TeacherForced:
        device = self.world.device
        batch = [torch.from_numpy(x).to(device) for x in tensors(sentences, self.vocabulary)]
        with self._autocast():
            forced: TeacherForced = self.forward_pass(grid.to(device), *batch, generator=self.generator, **how)
        return replace(forced, logits=forced.logits.float(), alpha=forced.alpha.float())

    def _autocast(self) -> AbstractContextManager[Any]:
        kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(self.settings.precision)
        return torch.autocast(self.world.device.type, dtype=kind) if kind else nullcontext()

    def _sampled_rows(self, shape: tuple[int, ...]) -> Tensor | None:
        """Hard attention: which captions look at sampled places; the others use the expectation."""
        if not self.network.decoder.hard:
            return None
        draws = torch.rand(shape, generator=self.generator, device=self.world.device)
        return draws >= self.settings.hard.expected

    # --- what surrounds a batch ----------------------------------------------------------------------

    def _enter_epoch(self) -> None:
        """What changes from epoch to epoch: does the tail learn, has the self-critical stage begun."""
        s, p = self.settings, self.state
        for parameter in self.setup.tail:
            parameter.requires_grad_(p.epoch >= s.tune.start_epoch)
        if s.scst and p.epoch >= s.scst.start_epoch and self.critic is None:
            self.critic = SelfCritical(s.scst, self.network.decoder, self.vocabulary, self.setup.corpus)
        self.forward_pass: nn.Module = ForwardPass(self.network)
        if s.compile:
            self.forward_pass = torch.compile(self.forward_pass, dynamic=True)  # type: ignore[assignment]
        if self.world.size > 1:
            self.forward_pass = DistributedDataParallel(
                self.forward_pass, broadcast_buffers=False
            )  # none of them ever changes

    def _plan(self) -> list[StepPlan]:
        s = self.settings
        how = {"images": s.images, "captions": s.captions, "seed": self.config.seed, "world": self.world.size}
        least = self.critic.settings.references if self.critic else 1
        steps = plan(self.setup.corpus, epoch=self.state.epoch, least=least, **how)
        if not steps:
            raise CaptionerError(f"no training image has {least} captions (training.scst.references)")
        return steps

    def _batches(self, steps: list[StepPlan], first: int) -> Iterator[tuple[StepPlan, Tensor]]:
        """This process's share of each step and its grids, read one step ahead."""
        epoch, rank = self.state.epoch, self.world.rank

        def fetch(i: int) -> tuple[StepPlan, Tensor]:
            mine = steps[i].share(rank, self.world.size)
            rng = np.random.default_rng([self.config.seed, epoch, first + i, rank, 0xF1])
            return mine, self.setup.train_grids(mine.images, rng)

        with ThreadPoolExecutor(1) as pool:
            ahead = [pool.submit(fetch, 0)] if steps else []
            for i in range(len(steps)):
                now = ahead.pop()
                if i + 1 < len(steps):
                    ahead.append(pool.submit(fetch, i + 1))
                yield now.result()

    def _set_rate(self, steps: int) -> float:
        s, p = self.settings, self.state
        if self.critic:
            rate = schedule.self_critical_rate(s, p.stage_steps)
        else:
            last = s.scst.start_epoch if s.scst else s.epochs
            done = p.epoch * steps + p.position
            rate = s.optimizer.learning_rate * schedule.factor(s.schedule, done, last * steps, p.plateaus)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        return rate

    def _validate(self) -> None:
        s, p = self.settings.validation, self.state
        began = time.monotonic()
        with self.ema.swapped_in():
            backend = TorchBackend(self.network, self.vocabulary, self.world.device)
            found = validate(backend, self.setup.val_set, self.setup.val_grids, s, self.world)
            now = found.scores[s.score]
            if now > p.best:
                p.best, p.best_epoch, p.waiting = now, p.epoch, 0
                self.keeper.save_best(p, found.scores)
            else:
                p.waiting += 1
                p.plateaus += p.waiting % (self.settings.schedule.patience + 1) == 0
        line = ", ".join(f"{name} {value:.1f}" for name, value in found.scores.items())
        mark = " (best)" if p.waiting == 0 else ""
        self.logger.info(f"epoch {p.epoch}: {line}{mark}, {time.monotonic() - began:.0f} s")
        self.logger.metrics(p.step, epoch=p.epoch, validation=found.scores)
        self.logger.samples(p.step, self.setup.val_set, found.samples, backend)

    def _add(self, **values: float) -> None:
        for name, value in values.items():
            self.state.sums[name] = self.state.sums.get(name, 0.0) + value

    def _log(self, steps: int) -> None:
        """A line of metrics: means since the last one, over all processes."""
        p = self.state
        sums, p.sums = self.world.totals(p.sums), {}
        row: dict[str, float] = {
            "epoch": round(p.epoch + p.position / steps, 4),
            "rate": self.optimizer.param_groups[0]["lr"],
        }
        if "words" in sums:
            row["nll"] = sums.pop("nll") / sums.pop("words")  # per word, without label smoothing
        if "updates" in sums:
            row["gradient"] = sums.pop("gradient") / sums.pop("updates")
        count = sums.pop("steps")
        row |= {name: value / count for name, value in sums.items()}
        if p.baseline is not None:
            row["baseline"] = p.baseline
        self.logger.metrics(p.step, **row)

    def _save(self) -> None:
        self.keeper.save(self.state)


def _seed(*parts: int) -> int:
    """One number from several, for a torch generator."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> 1)
