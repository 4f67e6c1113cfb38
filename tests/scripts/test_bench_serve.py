"""scripts/bench_serve with few requests: what it counts is right for a service that loses nothing."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.processes import run_with_children
from tests.serve.pictures import png
from tests.tiny_bundle import write_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("bench")
    for number in range(8):
        (folder / f"{number}.png").write_bytes(png(number, 400))
        with Image.open(folder / f"{number}.png") as image:
            image.save(folder / f"{number}.jpg")
    model = write_model(folder / "model").folder
    counts = "--count 200 --rounds 1 --calls 10 --warming 1 --seconds 3 --stops 2 --soak 1000"
    command = [sys.executable, str(ROOT / "scripts" / "bench_serve"), str(folder), "--model", str(model)]
    output = folder / "figures.json"
    done = run_with_children([*command, *counts.split(), "--output", str(output)], seconds=500)
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(output.read_text())
    return values


@pytest.mark.slow
def test_throughput_and_latency_are_measured_beside_the_library(figures: dict[str, Any]) -> None:
    assert figures["throughput"]["service_per_second"] > 0 and figures["throughput"]["library_per_second"] > 0
    assert figures["latency"]["service_ms"] > 0 and figures["latency"]["library_ms"] > 0


@pytest.mark.slow
def test_at_twice_the_sustainable_rate_every_request_is_answered(figures: dict[str, Any]) -> None:
    overload = figures["overload"]
    assert overload["other"] == overload["lost"] == 0
    assert overload["answered_200"] > 0 and overload["p99_s"] > 0
    assert overload["memory_peak_mb"] >= overload["memory_at_the_end_mb"] > 0


def test_growth_compares_the_last_quarter_with_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # the script adds its folder
    script = runpy.run_path(str(ROOT / "scripts" / "bench_serve"))
    assert script["growth"]([0, 1, 90, 110, 500, 700, 100, 120]) == pytest.approx(0.1)


@pytest.mark.slow
def test_stops_under_load_lose_no_accepted_request(figures: dict[str, Any]) -> None:
    stop = figures["stop"]
    assert stop["stops"] == 2 and stop["answered_200"] > 0
    assert stop["exit_not_0"] == stop["lost"] == stop["other"] == 0


@pytest.mark.slow
def test_broken_pictures_and_aborted_connections_leave_nothing_behind(figures: dict[str, Any]) -> None:
    soak = figures["soak"]
    assert soak["answered_200"] + soak["answered_422"] == soak["requests"] == 1000
    assert soak["answered_422"] > 0
    assert soak["other"] == soak["lost"] == soak["queue_depth_after"] == 0
