"""The seeds of scripts/fuzz: valid files of every parser, and files that fuzzing found worth keeping."""

from __future__ import annotations

from pathlib import Path

import pytest

from attack_suite.fuzz_targets import TARGETS

SEEDS = Path(__file__).parent / "fuzz_seeds"


@pytest.mark.parametrize("target", TARGETS)
def test_parsers_accept_or_refuse_every_seed_in_their_own_way(target: str) -> None:
    seeds = sorted((SEEDS / target).iterdir())
    assert seeds
    for seed in seeds:
        TARGETS[target](seed.read_bytes())
        TARGETS[target](seed.read_bytes()[:-1])


def test_seeds_stay_small() -> None:
    assert sum(path.stat().st_size for path in SEEDS.rglob("*")) < 300_000
