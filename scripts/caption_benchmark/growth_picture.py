"""The rows of `growth` as one picture: a small diagram per kind."""

from __future__ import annotations

import csv
from pathlib import Path


def draw(table: Path, picture: Path) -> None:
    """Draw the processor time per caption. The number of pictures and their size have logarithmic axes."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "captioner"  # the same table gives the same file
    from matplotlib import pyplot

    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    kinds = list(dict.fromkeys(row["what"] for row in rows))
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(2.6 * len(kinds), 2.6), layout="constrained", squeeze=False)
    for kind, axis in zip(kinds, axes[0], strict=True):
        for backend in dict.fromkeys(row["backend"] for row in rows):
            points = [row for row in rows if (row["what"], row["backend"]) == (kind, backend)]
            values = [float(row["value"]) for row in points]
            axis.plot(values, [float(row["processor_ms"]) for row in points], marker="o", label=backend)
            if kind in ("pictures", "megapixels"):
                axis.set_xscale("log")
            axis.set_xticks(values, [f"{value:,g}" for value in values], minor=False)
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_xlabel(kind)
    axes[0][0].set_ylabel("processor ms per caption")
    axes[0][0].legend()
    figure.savefig(picture, metadata={"Date": None})
