"""The learning rate and other weights as pure functions of the state, so that a resumed run has the same."""

from __future__ import annotations

import math

from captioner.train.checkpoint import TrainingState
from captioner.train.config import ScheduleSettings, TrainingSettings
from captioner.train.loss_settings import GroundingSettings

SELF_CRITICAL_WARMUP = 100  # steps


def learning_rate(settings: TrainingSettings, state: TrainingState, steps: int, *, self_critical: bool) -> float:
    """The decoder's learning rate at the current batch; `steps` is the number of batches in this epoch."""
    if self_critical:
        return self_critical_rate(settings, state.stage_steps)
    done = state.epoch * steps + state.position
    return settings.optimizer.learning_rate * factor(
        settings.schedule, done, cross_entropy_epochs(settings) * steps, state.plateaus
    )


def cross_entropy_epochs(settings: TrainingSettings) -> int:
    """The epochs before the self-critical stage, which the schedule is about."""
    return settings.scst.start_epoch if settings.scst else settings.epochs


def annealed(first: float, last: float | None, progress: float) -> float:
    """A weight that changes linearly with the progress of the run, 0 to 1; constant without a last value."""
    return first if last is None else first + (last - first) * progress


def grounding_weight(settings: GroundingSettings, epochs_done: float, epochs: int) -> float:
    """The weight of the loss of grounded attention after so many epochs of a run."""
    progress = min(1.0, epochs_done / (settings.final_epoch or epochs))
    return annealed(settings.weight, settings.final_weight, progress)


def factor(settings: ScheduleSettings, step: int, steps: int, plateaus: int = 0) -> float:
    """The factor of the base rate at `step` of `steps`; `plateaus` counts how often the score stopped rising."""
    rise = warmup_steps(settings, steps)
    warmup = min(1.0, (step + 1) / rise) if rise else 1.0
    if settings.name == "cosine":
        progress = min(1.0, max(0, step - rise) / max(1, steps - rise))
        return warmup * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
    if settings.name == "plateau":
        return float(warmup * settings.factor**plateaus)
    return warmup


def warmup_steps(settings: ScheduleSettings, steps: int) -> int:
    """The steps of the warm-up in a run of so many steps."""
    return round(settings.warmup * steps) if settings.warmup < 1 else int(settings.warmup)


def self_critical_rate(settings: TrainingSettings, stage_steps: int) -> float:
    """The decoder's rate in the self-critical stage: constant after a short warm-up."""
    assert settings.scst is not None
    return settings.scst.learning_rate * min(1.0, (stage_steps + 1) / SELF_CRITICAL_WARMUP)
