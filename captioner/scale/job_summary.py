"""The summary of a captioning job: pictures, failures by reason, speed and cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from captioner.scale.shard_captioning import ShardReport


@dataclass
class JobSummary:
    """Adds up the reports of shards."""

    finished_before: int = 0  # shards that an earlier run has done
    cpus: float = 1.0
    price_per_cpu_hour: float | None = None
    shards: int = 0
    pictures: int = 0
    seconds: float = 0.0  # of the whole job, with the start of its workers
    errors: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)  # captioned up to where they can be read
    failed: list[str] = field(default_factory=list)  # without an output

    def add(self, report: ShardReport) -> None:
        self.pictures += report.pictures
        self.errors.update(report.errors)
        self.shards += report.is_finished
        if report.problem:
            (self.damaged if report.is_finished else self.failed).append(report.problem)

    @property
    def captioned(self) -> int:
        return self.pictures - self.errors.total()

    @property
    def pictures_per_cpu_second(self) -> float:
        return self.pictures / self.seconds / self.cpus if self.seconds and self.cpus else 0.0

    @property
    def cost_per_million(self) -> float | None:
        if self.price_per_cpu_hour is None or not self.pictures_per_cpu_second:
            return None
        return self.price_per_cpu_hour * 1e6 / self.pictures_per_cpu_second / 3600

    def lines(self) -> list[str]:
        """What a person wants to know at the end."""
        before = f" ({self.finished_before:,} before)" if self.finished_before else ""
        lines = [f"{self.captioned:,} captioned in {_counted(self.shards, 'shard')}{before}"]
        if self.errors:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.errors.most_common())
            lines.append(f"{self.errors.total():,} without a caption: {reasons}")
        lines += [f"damaged: {problem}" for problem in self.damaged]
        lines += [f"failed: {problem}" for problem in self.failed]
        if self.pictures_per_cpu_second:
            cpus = f"{self.cpus:g} CPU{'s' if self.cpus != 1 else ''}"
            speed = f"{self.pictures_per_cpu_second:.1f} pictures per second per CPU ({self.seconds:,.0f} s, {cpus})"
            cost = "" if self.cost_per_million is None else f", {self.cost_per_million:,.2f} per million pictures"
            lines.append(speed + cost)
        return lines

    def record(self) -> dict[str, Any]:
        """The summary as JSON."""
        return {
            "captioned": self.captioned,
            "without_caption": dict(self.errors.most_common()),
            "shards": self.shards,
            "shards_before": self.finished_before,
            "damaged": self.damaged,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "cpus": self.cpus,
            "pictures_per_second_per_cpu": round(self.pictures_per_cpu_second, 3),
            "cost_per_million": self.cost_per_million,
        }


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
