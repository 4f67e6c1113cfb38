"""An evaluation as sections of named figures: for the terminal, for the report, and as JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from captioner.evaluation.attention_maps import MapStatistics
from captioner.evaluation.deletion import Deletion
from captioner.evaluation.grounding import Comparison, Grounding
from captioner.evaluation.hallucination import Hallucination
from captioner.evaluation.protocol import Evaluation
from captioner.evaluation.randomisation import Randomisation
from captioner.evaluation.reliance import Reliance
from captioner.metrics.means import Mean


@dataclass(frozen=True)
class Row:
    """A printed figure. `bar` is value, low and high if the report draws it as a bar."""

    name: str
    value: str
    interval: str = ""
    remark: str = ""
    bar: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Section:
    """A titled table of figures."""

    title: str
    rows: tuple[Row, ...]
    note: str = ""


def sections(evaluation: Evaluation) -> list[Section]:
    """All figures, and the figures that were not measured, with the reason."""
    tables = [_scores(evaluation), _captions(evaluation)]
    if evaluation.likelihood is not None:
        tables.append(_likelihood(evaluation))
    if evaluation.maps is not None:
        tables.append(_maps(evaluation.maps))
    if evaluation.grounding is not None:
        tables.append(_grounding(evaluation.grounding))
    if evaluation.hallucination is not None:
        tables.append(_hallucination(evaluation.hallucination))
    if evaluation.reliance is not None:
        tables.append(_reliance(evaluation.reliance))
    if evaluation.deletion is not None:
        tables.append(_deletion(evaluation.deletion))
    if evaluation.randomisation is not None:
        tables.append(_randomisation(evaluation.randomisation))
    if evaluation.not_measured:
        rows = tuple(Row(name, "", remark=reason) for name, reason in evaluation.not_measured.items())
        tables.append(Section("Not measured", rows))
    return tables


def heading(evaluation: Evaluation) -> str:
    """The model, the data and the search settings."""
    options = evaluation.options
    return (
        f"{evaluation.model} ({evaluation.attention} attention) on {evaluation.data}, split {evaluation.split}: "
        f"{len(evaluation.items):,} images, free-running, {options.summary}, "
        f"at most {options.max_length} words, backend {evaluation.backend}"
    )


def text(evaluation: Evaluation) -> str:
    """All figures as text for a terminal."""
    tables = sections(evaluation)
    rows = [row for table in tables for row in table.rows]
    name_width = max(len(row.name) for row in rows) + 2
    value_width = max(len(row.value) for row in rows)
    interval_width = max(len(row.interval) for row in rows)
    lines = [heading(evaluation), *(f"note: {note}" for note in evaluation.notes)]
    for table in tables:
        lines += ["", table.title + (f" ({table.note})" if table.note else "")]
        for row in table.rows:
            if row.value:
                figure = f"{row.value:>{value_width}}  {row.interval:<{interval_width}}"
                line = f"  {row.name:<{name_width}}{figure}  {row.remark}"
            else:
                line = f"  {row.name:<{name_width}}{row.remark}"
            lines.append(line.rstrip())
    warnings = [*evaluation.scores.warnings, *(f"ALARM: {alarm}" for alarm in evaluation.alarms)]
    if warnings:
        lines += ["", *warnings]
    lines += ["", f"{evaluation.seconds:.1f} s: " + ", ".join(f"{k} {v:.1f}" for k, v in evaluation.timing.items())]
    return "\n".join(lines)


def _scores(evaluation: Evaluation) -> Section:
    scores = evaluation.scores
    rows = []
    for name, interval in scores.intervals().items():
        value = scores.values[name]
        bar = (value, interval.low, interval.high)
        rows.append(Row(name, f"{value:.1f}", f"{interval.low:.1f} to {interval.high:.1f}", bar=bar))
    rows += [Row(name, "", remark=f"not available: {reason}") for name, reason in scores.unavailable.items()]
    return Section("Scores", tuple(rows), "times 100; 95 % intervals by bootstrap over images")


def _captions(evaluation: Evaluation) -> Section:
    diversity = evaluation.diversity
    rows = [
        Row("words per caption", f"{diversity.length.value:.2f}", _interval(diversity.length, 2)),
        Row("different words used", f"{diversity.vocabulary:,}"),
        *(Row(f"distinct-{n}", f"{share:.4f}") for n, share in diversity.distinct.items()),
        Row("different captions", f"{diversity.different:.1%}"),
        Row("repeat a noun", f"{diversity.repeating.value:.1%}", _percent(diversity.repeating)),
    ]
    if diversity.empty:
        rows.append(Row("empty captions", f"{diversity.empty:,}"))
    if diversity.unseen is not None:
        rows.append(Row("not in the training set", f"{diversity.unseen.value:.1%}", _percent(diversity.unseen)))
    return Section("Captions", tuple(rows))


def _likelihood(evaluation: Evaluation) -> Section:
    likelihood = evaluation.likelihood
    assert likelihood is not None
    rows = (
        Row("perplexity per word", f"{likelihood.perplexity.value:.2f}", _interval(likelihood.perplexity, 2)),
        Row(
            "words read as <unk>",
            f"{likelihood.unknown:.2%}",
            remark=f"of {likelihood.words:,} in {likelihood.captions:,} references",
        ),
    )
    return Section("Likelihood of the references", rows, "teacher-forced: independent of the captions above")


def _maps(maps: MapStatistics) -> Section:
    rows = [
        Row(
            "entropy of a map",
            f"{maps.entropy.value:.2f}",
            _interval(maps.entropy, 2),
            f"nats; {maps.spread:.0%} of an even spread ({math.log(maps.cells):.2f})",
        )
    ]
    if maps.movement is not None:
        rows.append(Row("moves from word to word", f"{maps.movement.value:.1%}", _percent(maps.movement)))
    if maps.difference is not None:
        rows.append(Row("differs between images", f"{maps.difference.value:.1%}", _percent(maps.difference)))
    return Section("Attention", tuple(rows), "share of the attention that differs between two maps")


def _grounding(figures: Grounding) -> Section:
    rows = (
        _compared("mass in the boxes", figures.mass),
        _compared("pointing game", figures.pointing),
        *(_compared(f"pointing game, {size} objects", sized.pointing) for size, sized in figures.sizes.items()),
        Row("nouns with a box", f"{figures.nouns:,}", remark=f"in {figures.images:,} images"),
        Row(
            "nouns without a box",
            f"{figures.absent_share.value:.1%}",
            _percent(figures.absent_share),
            f"{figures.absent:,} of {figures.nouns + figures.absent:,}; no box of their category in the picture",
        ),
    )
    return Section("Attention and boxes", rows, "attention for nouns, compared with the boxes of their category")


def _hallucination(figures: Hallucination) -> Section:
    worst = [f"{label} {wrong} of {all_}" for label, (all_, wrong) in figures.labels.items() if wrong][:5]
    rows = (
        Row("CHAIRi", f"{figures.objects.value:.1%}", _percent(figures.objects), f"of {figures.mentioned:,} objects"),
        Row(
            "CHAIRs", f"{figures.sentences.value:.1%}", _percent(figures.sentences), f"of {figures.captions:,} captions"
        ),
        *([Row("most often", "", remark=", ".join(worst))] if worst else []),
    )
    return Section("Hallucination", rows, "objects that neither the boxes nor the references have")


def _reliance(figures: Reliance) -> Section:
    rows = [
        Row(
            "rank correlation",
            f"{figures.correlation.value:.2f}",
            _interval(figures.correlation, 2),
            "with the attention",
        ),
        Row("words from habit", f"{figures.habit.value:.1%}", _percent(figures.habit), f"of {figures.words:,} words"),
    ]
    for name, objects in (("present", figures.present), ("absent", figures.absent)):
        if objects is not None:
            remark = f"of {objects.nouns:,} objects; {objects.marked.value:.1%} from habit"
            rows.append(Row(f"habit, {name} objects", f"{objects.habit.value:.1%}", _percent(objects.habit), remark))
    for name, grounded in (("reliance", figures.relied), ("attention", figures.attended)):
        if grounded is not None:
            rows += [
                _compared(f"mass in the boxes, {name}", grounded.mass),
                _compared(f"pointing game, {name}", grounded.pointing),
            ]
    return Section("Reliance", tuple(rows), f"what content words relied on, by occlusion; {figures.images:,} images")


def _randomisation(figures: Randomisation) -> Section:
    rows = (
        Row("rank correlation", f"{figures.correlation.value:.2f}", _interval(figures.correlation, 2)),
        Row("share that differs", f"{figures.difference.value:.1%}", _percent(figures.difference)),
    )
    return Section("Weight randomisation", rows, f"maps with shuffled decoder weights; {figures.images:,} images")


def _compared(name: str, figure: Comparison) -> Row:
    other = "" if figure.elsewhere is None else f", maps of other images {figure.elsewhere:.1%}"
    return Row(name, f"{figure.value.value:.1%}", _percent(figure.value), f"even map {figure.even:.1%}{other}")


def _deletion(figures: Deletion) -> Section:
    rows = (
        Row(
            "probability of a word",
            f"{figures.before.value:.3f}",
            _interval(figures.before, 3),
            f"{figures.words:,} words",
        ),
        Row("decrease, attended cells blank", f"{figures.attended.value:.3f}", _interval(figures.attended, 3)),
        Row("decrease, random cells blank", f"{figures.elsewhere.value:.3f}", _interval(figures.elsewhere, 3)),
        Row("difference", f"{figures.advantage.value:.3f}", _interval(figures.advantage, 3)),
    )
    return Section("Deletion", rows, f"{figures.share:.0%} of the picture blanked, {figures.images:,} images")


def _interval(mean: Mean, digits: int) -> str:
    return f"{mean.low:.{digits}f} to {mean.high:.{digits}f}"


def _percent(mean: Mean) -> str:
    return f"{mean.low:.1%} to {mean.high:.1%}"


def results(evaluation: Evaluation) -> list[dict[str, Any]]:
    """The captions in COCO's results format."""
    pairs = zip(evaluation.items, evaluation.captions, strict=True)
    return [{"image_id": item.id, "caption": caption.text} for item, caption in pairs]


def record(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as a JSON object, without the captions."""
    maps = evaluation.maps
    return {
        "model": evaluation.model,
        "attention": evaluation.attention,
        "backend": evaluation.backend,
        "data": evaluation.data,
        "split": evaluation.split,
        "images": len(evaluation.items),
        "protocol": "free-running, raw references, every image once",
        "search": dataclasses.asdict(evaluation.options),
        "scores": evaluation.scores.values,
        "intervals": {name: [pair.low, pair.high] for name, pair in evaluation.scores.intervals().items()},
        "not_available": dict(evaluation.scores.unavailable),
        "captions": _plain(evaluation.diversity),
        "likelihood": _plain(evaluation.likelihood),
        "maps": None if maps is None else {**_plain(maps), "spread": maps.spread},
        "boxes": _plain(evaluation.grounding),
        "hallucination": _plain(evaluation.hallucination),
        "reliance": _plain(evaluation.reliance),
        "deletion": _plain(evaluation.deletion),
        "randomisation": _plain(evaluation.randomisation),
        "not_measured": evaluation.not_measured,
        "notes": list(evaluation.notes),
        "warnings": [*evaluation.scores.warnings],
        "alarms": evaluation.alarms,
        "failures": [{"image": failure.name, "reason": failure.reason} for failure in evaluation.failures],
        "seconds": {name: round(value, 2) for name, value in evaluation.timing.items()},
    }


def _plain(figures: Any) -> Any:
    return None if figures is None else dataclasses.asdict(figures)
