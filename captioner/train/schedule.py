"""Learning rate as a pure function of the step, so that a resumed run has the same."""

from __future__ import annotations

import math

from captioner.train.config import ScheduleSettings, TrainingSettings


def factor(settings: ScheduleSettings, step: int, steps: int, plateaus: int = 0) -> float:
    """What the base rate is multiplied by at `step` of `steps`; `plateaus` counts the score's standstills."""
    warm = min(1.0, (step + 1) / settings.warmup) if settings.warmup else 1.0
    if settings.name == "cosine":
        progress = min(1.0, max(0, step - settings.warmup) / max(1, steps - settings.warmup))
        return warm * (settings.floor + (1 - settings.floor) * 0.5 * (1 + math.cos(math.pi * progress)))
    if settings.name == "plateau":
        return float(warm * settings.factor**plateaus)
    return warm


def self_critical_rate(settings: TrainingSettings, steps_in_stage: int) -> float:
    """The decoder's rate in the self-critical stage: constant after a short warm-up."""
    assert settings.scst is not None
    return settings.scst.learning_rate * min(1.0, (steps_in_stage + 1) / 100)
