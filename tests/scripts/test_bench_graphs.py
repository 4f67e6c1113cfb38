"""scripts/bench_graphs: one row per model, with the first one as the measure of the others."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_graphs"


def test_every_chosen_model_is_compared_with_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    script = runpy.run_path(str(SCRIPT))
    script["ENCODER"].update(name="efficientnet_lite0")
    script["main"](["--only", "a block", "--repeats", "1"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    first, soft, hard = rows[2:]
    assert first[0].startswith("8x8 cells, softmax") and first[-1] == "1.00"
    assert "a block" in soft[0] and hard[0].endswith("hard")
    for _, encoder, begin, steps, per_second, ratio in rows[2:]:
        total = float(encoder) + float(begin) + float(steps)
        assert float(per_second) == pytest.approx(1000 / total, rel=0.05)
        assert float(ratio) == pytest.approx(float(per_second) / float(first[4]), rel=0.02)
