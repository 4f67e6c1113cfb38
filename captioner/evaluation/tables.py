"""An evaluation as sections of named figures: for the terminal, for the report, and as JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from captioner.evaluation.attention_maps import MapStatistics
from captioner.evaluation.deletion import Deletion
from captioner.evaluation.grounding import Comparison, Grounding
from captioner.evaluation.protocol import Evaluation
from captioner.metrics.means import Mean


@dataclass(frozen=True)
class Row:
    """A figure as it is printed; `bar` is its value and interval where it is drawn too."""

    name: str
    value: str
    interval: str = ""
    remark: str = ""
    bar: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Section:
    title: str
    rows: tuple[Row, ...]
    note: str = ""


def sections(evaluation: Evaluation) -> list[Section]:
    """Everything measured, and what was not, with the reason."""
    found = [_scores(evaluation), _captions(evaluation)]
    if evaluation.likelihood is not None:
        found.append(_likelihood(evaluation))
    if evaluation.maps is not None:
        found.append(_maps(evaluation.maps))
    if evaluation.grounding is not None:
        found.append(_grounding(evaluation.grounding))
    if evaluation.deletion is not None:
        found.append(_deletion(evaluation.deletion))
    if evaluation.not_measured:
        rows = tuple(Row(name, "", remark=why) for name, why in evaluation.not_measured.items())
        found.append(Section("Not measured", rows))
    return found


def heading(evaluation: Evaluation) -> str:
    """Which model on what, and how it was asked."""
    options = evaluation.options
    attends = f", hard attention {options.hard_attention}" if options.hard_attention else ""
    return (
        f"{evaluation.model} ({evaluation.attention} attention) on {evaluation.data}, split {evaluation.split}: "
        f"{len(evaluation.items):,} images, free-running, {options.summary}, "
        f"at most {options.max_length} words{attends}"
    )


def text(evaluation: Evaluation) -> str:
    """The whole of it for a terminal."""
    tables = sections(evaluation)
    rows = [row for table in tables for row in table.rows]
    first = max(len(row.name) for row in rows) + 2
    second = max(len(row.value) for row in rows)
    third = max(len(row.interval) for row in rows)
    lines = [heading(evaluation), *(f"note: {note}" for note in evaluation.notes)]
    for table in tables:
        lines += ["", table.title + (f" ({table.note})" if table.note else "")]
        for row in table.rows:
            if row.value:
                line = f"  {row.name:<{first}}{row.value:>{second}}  {row.interval:<{third}}  {row.remark}"
            else:
                line = f"  {row.name:<{first}}{row.remark}"
            lines.append(line.rstrip())
    warnings = [*evaluation.scores.warnings, *(f"ALARM: {alarm}" for alarm in evaluation.alarms)]
    if warnings:
        lines += ["", *warnings]
    lines += ["", f"{evaluation.seconds:.1f} s: " + ", ".join(f"{k} {v:.1f}" for k, v in evaluation.timing.items())]
    return "\n".join(lines)


def _scores(evaluation: Evaluation) -> Section:
    scores = evaluation.scores
    rows = []
    for name, within in scores.intervals().items():
        value = scores.values[name]
        bar = (value, within.low, within.high)
        rows.append(Row(name, f"{value:.1f}", _between((within.low, within.high), 1), bar=bar))
    rows += [Row(name, "", remark=f"not available: {why}") for name, why in scores.unavailable.items()]
    return Section("Scores", tuple(rows), "times 100; 95 % intervals by bootstrap over images")


def _captions(evaluation: Evaluation) -> Section:
    found = evaluation.diversity
    rows = [
        Row("words a caption", f"{found.length.value:.2f}", _interval(found.length, 2)),
        Row("different words used", f"{found.vocabulary:,}"),
        *(Row(f"distinct-{n}", f"{share:.4f}") for n, share in found.distinct.items()),
        Row("different captions", f"{found.different:.1%}"),
    ]
    if found.empty:
        rows.append(Row("empty captions", f"{found.empty:,}"))
    if found.unseen is not None:
        rows.append(Row("not in the training set", f"{found.unseen.value:.1%}", _percent(found.unseen)))
    return Section("Captions", tuple(rows))


def _likelihood(evaluation: Evaluation) -> Section:
    found = evaluation.likelihood
    assert found is not None
    rows = (
        Row("perplexity of a word", f"{found.perplexity.value:.2f}", _interval(found.perplexity, 2)),
        Row(
            "words read as <unk>", f"{found.unknown:.2%}", remark=f"of {found.words:,} in {found.captions:,} references"
        ),
    )
    return Section("Likelihood of the references", rows, "teacher-forced: says nothing about the captions above")


def _maps(found: MapStatistics) -> Section:
    rows = [
        Row(
            "entropy of a map",
            f"{found.entropy.value:.2f}",
            _interval(found.entropy, 2),
            f"nats; {found.spread:.0%} of an even spread ({math.log(found.cells):.2f})",
        )
    ]
    if found.movement is not None:
        rows.append(Row("moves from word to word", f"{found.movement.value:.1%}", _percent(found.movement)))
    if found.difference is not None:
        rows.append(Row("differs between images", f"{found.difference.value:.1%}", _percent(found.difference)))
    return Section("Attention", tuple(rows), "part of the attention that has to move to make one map the other")


def _grounding(found: Grounding) -> Section:
    rows = (
        _against("mass in the boxes", found.mass),
        _against("pointing game", found.pointing),
        Row("nouns with a box", f"{found.nouns:,}", remark=f"in {found.images:,} images"),
        Row("nouns without a box", f"{found.absent:,}", remark="the picture has no box of what was named; not counted"),
    )
    return Section("Attention and boxes", rows, "nouns that name a category, against the boxes of that category")


def _against(name: str, found: Comparison) -> Row:
    other = "" if found.elsewhere is None else f", maps of other images {found.elsewhere:.1%}"
    return Row(name, f"{found.value.value:.1%}", _percent(found.value), f"even map {found.even:.1%}{other}")


def _deletion(found: Deletion) -> Section:
    rows = (
        Row("probability of a word", f"{found.before.value:.3f}", _interval(found.before, 3), f"{found.words:,} words"),
        Row("falls by, attended places blank", f"{found.attended.value:.3f}", _interval(found.attended, 3)),
        Row("falls by, random places blank", f"{found.elsewhere.value:.3f}", _interval(found.elsewhere, 3)),
        Row("difference", f"{found.advantage.value:.3f}", _interval(found.advantage, 3)),
    )
    return Section("Deletion", rows, f"{found.share:.0%} of the picture blanked, {found.images:,} images")


def _between(interval: tuple[float, float] | None, digits: int) -> str:
    return "" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"


def _interval(found: Mean, digits: int) -> str:
    return _between((found.low, found.high), digits)


def _percent(found: Mean) -> str:
    return f"{found.low:.1%} to {found.high:.1%}"


def results(evaluation: Evaluation) -> list[dict[str, Any]]:
    """COCO's results format."""
    pairs = zip(evaluation.items, evaluation.captions, strict=True)
    return [{"image_id": item.id, "caption": caption.text} for item, caption in pairs]


def record(evaluation: Evaluation) -> dict[str, Any]:
    """The evaluation as a JSON object, without the captions."""
    maps = evaluation.maps
    return {
        "model": evaluation.model,
        "attention": evaluation.attention,
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
        "deletion": _plain(evaluation.deletion),
        "not_measured": evaluation.not_measured,
        "notes": list(evaluation.notes),
        "warnings": [*evaluation.scores.warnings],
        "alarms": evaluation.alarms,
        "failures": [{"image": failure.name, "reason": failure.reason} for failure in evaluation.failures],
        "seconds": {name: round(value, 2) for name, value in evaluation.timing.items()},
    }


def _plain(found: Any) -> Any:
    return None if found is None else dataclasses.asdict(found)
