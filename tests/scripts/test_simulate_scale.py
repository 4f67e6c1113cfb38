"""The simulation of a large job loses what it should: little without failures, more with large shards at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scale_proof.simulation import Conditions, simulate

ROOT = Path(__file__).parents[2]
STEADY = Conditions([0.04, 0.04], per_shard=0, scheduler=0, start=0, slow_share=0, hours_between_failures=1_000_000_000)


def test_a_job_without_losses_takes_the_time_of_its_pictures():
    outcome = simulate(STEADY, actors=10, pictures=100_000, shard_size=100)
    assert outcome.efficiency == pytest.approx(1)
    assert outcome.hours == pytest.approx(100_000 * 0.04 / 10 / 3600)
    assert outcome.repeated == 0


def test_actors_wait_at_the_end_for_the_last_shards():
    """11 shards on 10 actors take as long as 20."""
    outcome = simulate(STEADY, actors=10, pictures=11_000, shard_size=1000)
    assert outcome.efficiency == pytest.approx(11 / 20)


def test_the_scheduler_limits_small_shards():
    """A thousand shards of 4 s on 100 actors need 40 s, and the scheduler alone 100 s."""
    outcome = simulate(replace(STEADY, scheduler=0.1), actors=100, pictures=100_000, shard_size=100)
    assert outcome.hours * 3600 == pytest.approx(104, rel=0.02)


def test_failures_cost_more_with_large_shards():
    often = replace(STEADY, hours_between_failures=1.0)
    small, large = (simulate(often, 50, 5_000_000, size) for size in (1000, 20_000))
    assert 0 < small.repeated < large.repeated
    # A shard of 1,000 pictures takes 40 s. A failure in it loses half of that: 40 / 3600 / 2 of the pictures.
    assert small.repeated == pytest.approx(40 / 3600 / 2, rel=0.3)


def test_the_command_prints_one_row_per_size(tmp_path):
    figures = {"seconds_per_picture": [0.04, 0.05], "ray_seconds_per_shard": 0.1}
    figures |= {"scheduler_seconds_per_shard": 0.01, "ray_start_seconds": 10}
    (tmp_path / "f.json").write_text(json.dumps(figures))
    arguments = [str(tmp_path / "f.json"), "--actors", "10", "--pictures", "10000", "--sizes", "100", "1000"]
    command = [sys.executable, str(ROOT / "scripts" / "simulate_scale"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]] == ["100", "1,000"]
