"""Warnings about a run that can't learn, each with the setting to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from captioner.train.config import TrainingSettings
from captioner.train.schedule import annealed, cross_entropy_epochs, grounding_weight, warmup_steps

DOMINANT = 0.5  # share of the loss from which a regulariser hides the captions
RISEN = 0.5  # share of the configured learning rate that a run should reach
UNCHANGED = 3  # validations with the same score, at least, that make a warning, unless patience is shorter


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
        yield from _dominant(weight * term, whole, "the loss", f"{key}={weight:g}, not the captions")
    if settings.grounding is not None and "grounding" in row:
        grounding = settings.grounding
        term = grounding_weight(grounding, row["epoch"], settings.epochs) * row["grounding"]  # not part of `loss`
        key = _larger(
            ("training.grounding.weight", grounding.weight), ("training.grounding.final_weight", grounding.final_weight)
        )
        # The rows have the term per word, and not how many words of a caption have it.
        yield from _dominant(
            term, loss + term, "the loss of a caption with one word that names boxes", f"{key}, not the words"
        )
    if "baseline" in row or "advantage" in row:  # cells are sampled, so there is an entropy bonus
        hard = settings.hard
        weight = annealed(hard.entropy, hard.final_entropy, row["epoch"] / settings.epochs)
        bonus = weight * (1 - hard.expected) * row["entropy"]
        key = _larger(("training.hard.entropy", hard.entropy), ("training.hard.final_entropy", hard.final_entropy))
        # Per word, beside the likelihood alone: the bonus makes `loss` smaller.
        yield from _dominant(bonus, row["nll"] + bonus, "the loss", f"{key}, not the captions")


def _dominant(term: float, whole: float, of: str, source: str) -> Iterator[str]:
    share = term / whole if whole > 0 else 0.0
    if share > DOMINANT:
        yield f"{share:.0%} of {of} is the term of {source}; lower it"


def _larger(*values: tuple[str, float | None]) -> str:
    """Of a weight that changes during the run: the setting that makes it large."""
    key, value = max(((key, value) for key, value in values if value is not None), key=lambda each: each[1])
    return f"{key}={value:g}"


def of_scores(settings: TrainingSettings, scores: Sequence[float]) -> Iterator[str]:
    """For the scores of all validations so far."""
    # The first epochs of a long run tell nothing. But early stopping may end it after `patience` equal scores.
    patience = settings.validation.patience
    count = max(UNCHANGED, settings.epochs // settings.validation.every // 3)
    stops_early = patience is not None and patience < count
    if patience is not None:
        count = max(2, min(count, patience))
    last = scores[-count:]
    if len(last) == count and max(last) - min(last) < 0.005:
        advice = "raise training.optimizer.learning_rate or training.epochs"
        if stops_early:
            advice += f", or training.validation.patience (now {patience}) if the model needs more time"
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
