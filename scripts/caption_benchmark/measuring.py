"""What a run costs, with runs that take turns, and commands with their peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[2]

Name = TypeVar("Name", bound=str)


@dataclass(frozen=True)
class Cost:
    """Seconds of a run: by the clock, and processor time summed over all processors, which other load affects less."""

    clock: float
    work: float


def lowest_costs(runs: Mapping[Name, Callable[[], object]], repeat: int) -> dict[Name, Cost]:
    """The lowest cost of each run. The runs take turns; the first turn warms up and doesn't count."""
    costs: dict[Name, list[Cost]] = {name: [] for name in runs}
    for turn in range(repeat + 1):
        for name, run in runs.items():
            clock, work = time.perf_counter(), time.process_time()
            run()
            if turn:
                costs[name].append(Cost(time.perf_counter() - clock, time.process_time() - work))
    return {
        name: Cost(min(cost.clock for cost in turns), min(cost.work for cost in turns)) for name, turns in costs.items()
    }


def run_measured(command: list[str], lines: Iterable[str] = ()) -> tuple[Cost, float]:
    """Run a command with these lines as its standard input. Returns its cost and its peak memory in MB."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled already
    start = time.perf_counter()
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment)
    assert child.stdin is not None
    with child.stdin as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench_caption: {' '.join(command[:4])} failed with exit code {child.returncode}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime), usage.ru_maxrss / 1024
