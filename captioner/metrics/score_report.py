"""The output of `captioner score`: the scores of one system, or of two with their differences, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from captioner.data.formats.coco_results import Pairing
from captioner.metrics.bootstrap import LEVEL
from captioner.metrics.text_scores import Scores


def record(
    pairings: Sequence[tuple[Path, Pairing]],
    scores: Sequence[Scores],
    warnings: Sequence[str],
    *,
    samples: int,
    seed: int,
) -> dict[str, Any]:
    """The report as a JSON object. `pairings` and `scores` have one entry per system."""
    systems = [
        _system(file, pairing, of_system, samples, seed)
        for (file, pairing), of_system in zip(pairings, scores, strict=True)
    ]
    bootstrap = {"samples": samples, "seed": seed, "level": LEVEL}
    report = {**systems[0], "warnings": list(warnings), "bootstrap": bootstrap}
    if len(systems) > 1:
        report["compared_with"] = systems[1]
        report["differences"] = {
            name: {"difference": d.difference, "interval": [d.interval.low, d.interval.high], "p": d.p}
            for name, d in scores[0].minus(scores[1], samples=samples, seed=seed).items()
        }
    return report


def _system(file: Path, pairing: Pairing, scores: Scores, samples: int, seed: int) -> dict[str, Any]:
    intervals = scores.intervals(samples=samples, seed=seed)
    return {
        "results": str(file),
        "scores": scores.values,
        "intervals": {name: [interval.low, interval.high] for name, interval in intervals.items()},
        "unavailable": scores.unavailable,
        "counts": {
            "images": len(pairing.results),
            "references": sum(map(len, pairing.references.values())),
            "results_without_references": len(pairing.without_references),
            "references_without_results": len(pairing.without_results),
        },
    }


def as_text(report: Mapping[str, Any]) -> str:
    """The report as a table with one line per metric."""
    counts = report["counts"]
    lines = [f"{counts['images']:,} images, {counts['references']:,} references", ""]
    other, differences = report.get("compared_with"), report.get("differences", {})
    if other:
        lines[1:1] = [f"score: {report['results']}; other: {other['results']}"]
    heading = f"{'':9}{'score':>8}   95 % interval"
    lines.append(heading + (f"{'other':>12}{'difference':>13}   95 % interval        p" if other else ""))
    for name, value in report["scores"].items():
        low, high = report["intervals"][name]
        line = f"{name:9}{value:8.2f}   {low:6.2f} – {high:6.2f}"
        if other and name in differences:
            difference = differences[name]
            low, high = difference["interval"]
            line += f"{other['scores'][name]:10.2f}{difference['difference']:+13.2f}   {low:+6.2f} – {high:+6.2f}"
            line += f"  {difference['p']:7.3f}"
        lines.append(line)
    lines += [f"{name:9}not available: {reason}" for name, reason in report["unavailable"].items()]
    return "\n".join(lines)
