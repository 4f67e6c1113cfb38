"""A simulated job: every free actor takes the next shard; some are slow, some fail, and one scheduler serves all."""

from __future__ import annotations

import heapq
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

PART = 50  # pictures of a measured service time


@dataclass(frozen=True)
class Conditions:
    """What a cluster is like. Times are in seconds."""

    seconds_per_picture: Sequence[float]  # measured, for parts of PART pictures
    per_shard: float  # measured: what an actor waits between two shards
    scheduler: float  # measured: time of the one scheduler per shard
    start: float  # measured: from the start of an actor to its first caption
    slow_share: float = 0.02  # of actors
    slowness: float = 2.0  # of those actors
    hours_between_failures: float = 20.0  # of one actor: 5 % of them fail in an hour, as on preemptible machines


@dataclass(frozen=True)
class Outcome:
    """What came of a simulated job."""

    hours: float
    efficiency: float  # share of the processors' time that made captions that were kept
    repeated: float  # share of the pictures that were captioned again


def simulate(conditions: Conditions, actors: int, pictures: int, shard_size: int, seed: int = 0) -> Outcome:
    """A job in which every free actor takes the next shard. A failed actor comes back after its start time."""
    draw = random.Random(seed)
    mean = statistics.fmean(conditions.seconds_per_picture)
    deviation = statistics.stdev(conditions.seconds_per_picture) * math.sqrt(PART)  # of one picture
    speed = [conditions.slowness if draw.random() < conditions.slow_share else 1.0 for _ in range(actors)]
    fails_at = [draw.expovariate(1 / (3600 * conditions.hours_between_failures)) for _ in range(actors)]
    free = [(conditions.start, actor) for actor in range(actors)]
    heapq.heapify(free)
    left = -(-pictures // shard_size)
    scheduler = end = repeated = useful = 0.0
    while left:
        now, actor = heapq.heappop(free)
        begin = max(now, scheduler) + conditions.scheduler
        scheduler = begin
        begin += conditions.per_shard
        work = max(0.1 * mean, draw.gauss(mean, deviation / math.sqrt(shard_size))) * shard_size
        finish = begin + work * speed[actor]
        if fails_at[actor] < finish:  # the shard goes back, and what was made of it is lost
            failed = max(begin, fails_at[actor])
            repeated += (failed - begin) / (finish - begin) * shard_size
            fails_at[actor] = failed + draw.expovariate(1 / (3600 * conditions.hours_between_failures))
            heapq.heappush(free, (failed + conditions.start, actor))
            continue
        left -= 1
        useful += work * speed[actor]
        end = max(end, finish)
        heapq.heappush(free, (finish, actor))
    return Outcome(end / 3600, useful / (end * actors), repeated / pictures)
