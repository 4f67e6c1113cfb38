"""The learning rate and other weights as pure functions of the state, so that a resumed run has the same."""

from __future__ import annotations

import math

from captioner.train.checkpoint import TrainingState
from captioner.train.config import ScheduleSettings, TrainingSettings

SELF_CRITICAL_WARMUP = 100  # steps


def learning_rate(settings: TrainingSettings, state: TrainingState, steps: int, *, self_critical: bool) -> float:
    """The decoder's learning rate at the current batch; `steps` is the number of batches in this epoch."""
    if self_critical:
        return self_critical_rate(settings, state.stage_steps)
    last_epoch = settings.scst.start_epoch if settings.scst else settings.epochs
    done = state.epoch * steps + state.position
    return settings.optimizer.learning_rate * factor(settings.schedule, done, last_epoch * steps, state.plateaus)


def annealed(first: float, last: float | None, progress: float) -> float:
    """A weight that changes linearly with the progress of the run, 0 to 1; constant without a last value."""
    return first if last is None else first + (last - first) * progress


def factor(settings: ScheduleSettings, step: int, steps: int, plateaus: int = 0) -> float:
    """The factor of the base rate at `step` of `steps`; `plateaus` counts how often the score stopped rising."""
    warmup = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    if settings.name == "cosine":
        progress = min(1.0, max(0, step - settings.warmup) / max(1, steps - settings.warmup))
        return warmup * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
    if settings.name == "plateau":
        return float(warmup * settings.factor**plateaus)
    return warmup


def self_critical_rate(settings: TrainingSettings, stage_steps: int) -> float:
    """The decoder's rate in the self-critical stage: constant after a short warm-up."""
    assert settings.scst is not None
    return settings.scst.learning_rate * min(1.0, (stage_steps + 1) / SELF_CRITICAL_WARMUP)
