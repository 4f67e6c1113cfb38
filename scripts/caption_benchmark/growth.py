"""How the cost of captioning grows with the number of pictures, their size, the beam, the n best and the threads."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from caption_benchmark.large_pictures import write_mosaics
from caption_benchmark.measuring import lowest_costs, run_measured
from captioner import Captioner
from captioner.inference.model_loading import processors
from captioner.options import BackendLabel

PICTURES = (100, 1_000, 10_000)
MEGAPIXELS = {"0.3": 64, "3": 64, "12": 16, "50": 4}  # with how many pictures each is measured
BEAMS = (1, 3, 5, 10)
N_BEST = (1, 3, 5, 10)  # with a beam of 10


@dataclass(frozen=True)
class Growth:
    """The cost of one caption, where one thing has this value and everything else its default."""

    what: str
    value: float
    backend: BackendLabel
    processor_ms: float
    clock_ms: float
    peak_mb: float | None = None  # of the whole command, where one was run


def measure_growth(
    model: str, photographs: Sequence[str], folder: Path, backends: Sequence[BackendLabel], repeat: int
) -> Iterator[Growth]:
    """All rows, one after another. Larger pictures are written to `folder`."""
    captioners = {name: Captioner.load(model, backend=name) for name in backends}
    large = {size: write_mosaics(folder, photographs, size, count) for size, count in MEGAPIXELS.items()}

    def rows(what: str, value: float, count: int, runs: dict[BackendLabel, Callable[[], object]]) -> Iterator[Growth]:
        for name, cost in lowest_costs(runs, repeat).items():
            yield Growth(what, value, name, 1000 * cost.work / count, 1000 * cost.clock / count)

    for size, paths in large.items():
        runs = {name: stream(captioner, paths, beam=3) for name, captioner in captioners.items()}
        yield from rows("megapixels", float(size), len(paths), runs)
    for beam in BEAMS:
        runs = {name: stream(captioner, photographs, beam=beam) for name, captioner in captioners.items()}
        yield from rows("beam", beam, len(photographs), runs)
    for n_best in N_BEST:
        runs = {name: stream(each, photographs, beam=10, n_best=n_best) for name, each in captioners.items()}
        yield from rows("n best of beam 10", n_best, len(photographs), runs)
    for threads in sorted({1, processors()}):
        limited = {name: Captioner.load(model, backend=name, threads=threads) for name in backends}
        runs = {name: stream(captioner, photographs, beam=3) for name, captioner in limited.items()}
        yield from rows("threads", threads, len(photographs), runs)


def measure_counts(
    model: str, photographs: Sequence[str], backends: Sequence[BackendLabel], counts: Sequence[int] = PICTURES
) -> Iterator[Growth]:
    """The command line with more and more pictures, start included."""
    for count, name in itertools.product(counts, backends):
        command = [sys.executable, "-m", "captioner", "caption", "-", "--model", model, "--backend", name]
        cost, peak = run_measured([*command, "--beam", "3"], itertools.islice(itertools.cycle(photographs), count))
        yield Growth("pictures", count, name, 1000 * cost.work / count, 1000 * cost.clock / count, peak)


def stream(captioner: Captioner, paths: Sequence[str], *, beam: int, n_best: int = 1) -> Callable[[], object]:
    return lambda: list(captioner.stream(list(paths), beam=beam, n_best=n_best))


def write_table(path: Path, rows: Sequence[Growth]) -> None:
    """Write the rows as CSV. Rows of other kinds that the file has from before stay."""
    kinds = {row.what for row in rows}
    older = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    values = [row for row in older if row["what"] not in kinds]
    values += [{key: _text(value) for key, value in asdict(row).items()} for row in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Growth)])
        writer.writeheader()
        writer.writerows(values)


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
