"""The comparison as a table in docs/attention.md, as a CSV file, and as a picture of maps."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from attention_comparison.map_picture import draw_maps
from attention_comparison.mechanisms import MECHANISMS
from attention_comparison.runs import Run
from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically
from captioner.train.config import Config
from captioner.train.run_folder import RunFolder
from machine import hardware, hardware_slug

BEGIN, END = "<!-- table: scripts/compare_attention -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Row:
    """One row of the table. Intervals are 95 % intervals over images."""

    name: str
    seed: int
    hard_attention: str
    settings: str
    bleu4: float
    bleu4_low: float
    bleu4_high: float
    cider: float
    cider_low: float
    cider_high: float
    epoch_seconds: float
    captions_per_second: float
    entropy: float
    movement: float
    images: int
    parameters: int


def read_rows(run: Run) -> list[Row]:
    """The rows of a complete run: one per mode of hard attention."""
    return [_read_row(run, mode) for mode in run.hard_attention_modes()]


def _read_row(run: Run, hard_attention: str | None) -> Row:
    evaluation = json.loads(run.evaluation(hard_attention).read_text())
    scores, intervals, maps = evaluation["scores"], evaluation["intervals"], evaluation["maps"]
    bleu4_low, bleu4_high = intervals["BLEU-4"]
    cider_low, cider_high = intervals["CIDEr"]
    timing = json.loads(run.timing.read_text())
    return Row(
        name=run.mechanism,
        seed=run.seed,
        hard_attention=hard_attention or "",
        settings=" ".join(MECHANISMS[run.mechanism]),
        bleu4=scores["BLEU-4"],
        bleu4_low=bleu4_low,
        bleu4_high=bleu4_high,
        cider=scores["CIDEr"],
        cider_low=cider_low,
        cider_high=cider_high,
        epoch_seconds=_epoch_seconds(run),
        captions_per_second=timing["captions_per_second"],
        entropy=maps["entropy"]["value"],
        movement=maps["movement"]["value"] if maps["movement"] else 0.0,
        images=evaluation["images"],
        parameters=timing["parameters"],
    )


def _epoch_seconds(run: Run) -> float:
    """Seconds per epoch, from all timed steps: the epochs of a resumed run are timed in pieces."""
    timing, metrics = RunFolder(run.folder).read_timing(), RunFolder(run.folder).read_metrics()
    steps_per_epoch = metrics[-1]["step"] / run.config().training.epochs
    seconds, steps = sum(row["seconds"] for row in timing), sum(row["steps"] for row in timing)
    return float(steps_per_epoch * seconds / max(1, steps))


def write_report(output: Path, runs: Sequence[Run], picture: Path, text: str) -> None:
    """Write the table, the CSV file and the picture of maps below the folder `output`."""
    rows = [row for run in runs for row in read_rows(run)]
    table = output / "benchmarks" / f"attention-{hardware_slug()}.csv"
    write_csv(table, rows)
    page = output / "attention.md"
    replace_table(page, markdown_table(rows, runs[0].config()))
    maps = output / "pictures" / "attention_family.png"
    maps.parent.mkdir(parents=True, exist_ok=True)
    maps.write_bytes(draw_maps([run for run in runs if run.seed == 1], picture, text))
    print(f"{page}\n{table}\n{maps}", flush=True)


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(rows[0])))
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in asdict(row).items()})


def replace_table(page: Path, table: str) -> None:
    """Replace what stands between the two comments in the page. Creates the page if it is missing."""
    content = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CaptionerError(f"{page} has no place for the table: add the lines {BEGIN} and {END}")
    write_atomically(page, f"{before}{BEGIN}\n{table}\n{END}{after}")


def markdown_table(rows: Sequence[Row], config: Config) -> str:
    training, model = config.training, config.model
    threads = ""
    if training.threads is not None:
        threads = f", {training.threads} thread{'s' if training.threads > 1 else ''}"
    lines = [
        f"Each run trains for {training.epochs} epochs of {', '.join(str(s.captions) for s in config.data.train)}, "
        f"with {training.images} images x {training.captions} captions per step, a decoder of width "
        f"{model.hidden_size} and the learning rate {training.optimizer.learning_rate:g}; {hardware()}{threads}. "
        f"Scores are on {rows[0].images:,} images with beam {training.validation.search.beam} and 95 % intervals over "
        "images. Models that sample cells use the expectation or, where the row says argmax, the most likely cell "
        "alone. Longer training may change the order.",
        "",
        "| mechanism | settings below `model` | weights | BLEU-4 | CIDEr | seconds per epoch | captions per second | "
        "entropy | movement |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = row.name if row.seed == 1 else f"{row.name}, seed {row.seed}"
        name += f", {row.hard_attention}" if row.hard_attention else ""
        settings = " ".join(f"`{setting}`" for setting in row.settings.split()) or "the defaults"
        lines.append(
            f"| {name} | {settings} | {row.parameters / 1e6:.2f} M "
            f"| {row.bleu4:.1f} ({row.bleu4_low:.1f} to {row.bleu4_high:.1f}) "
            f"| {row.cider:.1f} ({row.cider_low:.1f} to {row.cider_high:.1f}) | {row.epoch_seconds:.0f} "
            f"| {row.captions_per_second:.0f} | {row.entropy:.2f} | {row.movement:.0%} |"
        )
    lines += [
        "",
        "![The maps of all models for one sentence about one photograph](pictures/attention_family.png)",
        "",
        "Each model has its own scale. The number says how many times a uniform weight its lightest color is.",
    ]
    return "\n".join(lines)
