"""Warnings about a run that can't learn, each with the setting to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from captioner.train.config import TrainingSettings
from captioner.train.schedule import cross_entropy_epochs, warmup_steps

DOMINANT = 0.5  # share of the loss from which a regulariser hides the captions
RISEN = 0.5  # share of the configured learning rate that a run should reach
UNCHANGED = 3  # validations with the same score, at least, that make a warning


def before_training(settings: TrainingSettings, steps: int) -> Iterator[str]:
    """For a run with `steps` batches per epoch."""
    total = cross_entropy_epochs(settings) * steps
    warmup = warmup_steps(settings.schedule, total)
    if total and warmup >= total:
        yield (
            f"the run has {total:,} steps and a warm-up of {warmup:,}: the learning rate never reaches "
            f"{settings.optimizer.learning_rate:g}; set training.schedule.warmup=0.05 (a share of the run), or more "
            "training.epochs"
        )


def of_metrics(settings: TrainingSettings, row: dict[str, float]) -> Iterator[str]:
    """For one row of metrics.jsonl."""
    if "loss" not in row:  # in the self-critical stage, whose loss is near 0 by its nature
        return
    loss = row["loss"]
    terms = [("training.doubly_stochastic", settings.doubly_stochastic, row.get("coverage", 0.0), loss)]
    if settings.cell_categories is not None:
        weight, term = settings.cell_categories.weight, row.get("cell_categories", 0.0)
        terms.append(("training.cell_categories.weight", weight, term, loss + weight * term))  # not part of `loss`
    for key, weight, term, whole in terms:
        share = weight * term / whole if whole > 0 else 0.0
        if share > DOMINANT:
            yield f"{share:.0%} of the loss is the term of {key}={weight:g}, not the captions; lower it"


def of_scores(settings: TrainingSettings, scores: Sequence[float]) -> Iterator[str]:
    """For the scores of all validations so far."""
    # The first epochs of a long run tell nothing.
    count = max(UNCHANGED, settings.epochs // settings.validation.every // 3)
    last = scores[-count:]
    if len(last) == count and max(last) - min(last) < 0.005:
        advice = "raise training.optimizer.learning_rate or training.epochs"
        if settings.start_from is None:
            advice += ", or start from a model (training.start_from=default)"
        yield (
            f"{settings.validation.score} has been {last[-1]:.1f} in {count} validations: the model does not "
            f"learn; {advice}"
        )


def after_training(settings: TrainingSettings, rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """For all rows of metrics.jsonl."""
    rates = [row["rate"] for row in rows if "nll" in row]
    wanted = settings.optimizer.learning_rate
    if rates and max(rates) < RISEN * wanted:
        yield (
            f"the learning rate never rose above {max(rates):.1e}, {max(rates) / wanted:.0%} of "
            f"training.optimizer.learning_rate={wanted:g}; set training.schedule.warmup=0.05 (a share of the run), or "
            "more training.epochs"
        )
