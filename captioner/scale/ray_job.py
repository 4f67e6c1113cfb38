"""A captioning job on a Ray cluster: one task per shard, on a pool of actors that each load the model once.

Ray Data runs the pool and repeats what a lost actor or node had begun. Its unit of failure is the block, and here a
block is one shard: a repeated shard replaces nothing but an unfinished output.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from captioner import __version__
from captioner.errors import CaptionerError, UsageError
from captioner.inference.model_loading import processors
from captioner.installation import install_command
from captioner.progress import ProgressBar
from captioner.scale.finished_shards import report_of_output
from captioner.scale.job import Job
from captioner.scale.job_summary import JobSummary
from captioner.scale.locations import files_in, is_address, last_part, remove_unfinished
from captioner.scale.shard_captioning import ShardCaptioner, ShardReport, ShardSettings
from captioner.scale.shards import Shard, largest_first, with_sizes
from captioner.terminal import say

ATTEMPTS = 5  # workers that a shard may lose before it is given up: it may be the shard that kills them
BLOCKS = 20_000  # of a job; a job with more shards has several in a block
POLL = 1.0  # seconds between two looks at the progress


@dataclass(frozen=True)
class RayPool:
    """Where a job runs, and on how many actors."""

    address: str | None = None  # None: that of RAY_ADDRESS, else a cluster on this machine for the time of the job
    actors: int | None = None  # as many as the cluster has room for
    cpus_per_actor: int = 1


class Tracker:
    """An actor without a processor of its own that knows how far the job is."""

    def __init__(self) -> None:
        self.pictures = 0
        self._begun: dict[str, int] = {}
        self._reports: dict[str, ShardReport] = {}

    def begin(self, shard: str) -> tuple[int, ShardReport | None]:
        """How often the shard was begun, this time included, and its report if an earlier time finished it."""
        self._begun[shard] = self._begun.get(shard, 0) + 1
        return self._begun[shard], self._reports.get(shard)

    def advance(self, pictures: int) -> None:
        self.pictures += pictures

    def finish(self, report: ShardReport) -> None:
        self._reports[report.name] = report

    def state(self) -> tuple[int, int]:
        """Pictures that were captioned, and how often a shard was begun again."""
        return self.pictures, sum(self._begun.values()) - len(self._begun)


class CaptionShard:
    """Captions the shards of a block. It is a callable class for `map_batches` and raises nothing on a bad shard."""

    def __init__(self, settings: ShardSettings, output: str, origin: dict[str, str], tracker: Any) -> None:
        if origin["captioner.version"] != __version__:
            raise UsageError(f"a node has captioner {__version__}, the job {origin['captioner.version']}")
        self._captioner, self._output, self._tracker = ShardCaptioner(settings), output, tracker
        if self._captioner.origin != origin:
            raise UsageError(f"a node has another model of the name {settings.model!r} than the job")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        reports = [self._caption(shard) for shard in batch["shard"]]
        return {"report": reports}

    def _caption(self, shard: Shard) -> ShardReport:
        import ray

        attempt: int
        report: ShardReport | None
        attempt, report = ray.get(self._tracker.begin.remote(shard.name))
        if report is None and attempt > 1:
            report = report_of_output(shard, self._output, self._captioner.settings)
        if report is None and attempt > ATTEMPTS:
            problem = f"{shard.location}: {ATTEMPTS} workers died while they captioned it"
            report = ShardReport(shard.name, problem=problem, is_finished=False)
        if report is None:
            try:
                report = self._captioner.caption(shard, self._output, self._advance)
            except Exception as error:  # one shard must not end the job
                text = str(error) if isinstance(error, CaptionerError) else f"{type(error).__name__}: {error}"
                report = ShardReport(shard.name, problem=f"{shard.location}: {text}", is_finished=False)
        ray.get(self._tracker.finish.remote(report))
        return report

    def _advance(self, pictures: int) -> None:
        self._tracker.advance.remote(pictures)


def caption_on_ray(job: Job, origin: dict[str, str], pool: RayPool, summary: JobSummary) -> None:
    """Caption shards on a cluster, large ones first, and show progress, throughput and failures.

    `origin` is that of the job's model here. A node whose model differs is refused.
    """
    settings = replace(job.settings, root=str(Path.cwd()), threads=job.settings.threads or pool.cpus_per_actor)
    output = job.output if is_address(job.output) else str(Path(job.output).absolute())
    shards = [_absolute(shard) for shard in largest_first(with_sizes(job.left))]
    with _connected(pool) as ray:
        actors = min(len(shards), pool.actors or _room(ray, pool.cpus_per_actor))
        summary.cpus = actors * pool.cpus_per_actor
        started = time.monotonic()
        tracker = ray.remote(num_cpus=0)(Tracker).remote()
        dataset = ray.data.from_items(
            [{"shard": shard} for shard in shards], override_num_blocks=min(len(shards), BLOCKS)
        ).map_batches(
            CaptionShard,
            fn_constructor_args=(settings, output, origin, tracker),
            batch_size=1,
            # One task at a time: a second one would wait for a slow shard while other actors are idle.
            compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
            num_cpus=pool.cpus_per_actor,
        )
        try:
            _follow(ray, dataset, tracker, len(shards), summary)
        except ray.exceptions.RayError as error:
            raise CaptionerError(f"the job has failed; --resume continues it: {_cause(error)}") from error
        finally:
            summary.seconds = time.monotonic() - started
    finished = {last_part(shard.output(output, settings.format)) for shard in (*job.left, *job.finished)}
    remove_unfinished(output, finished & files_in(output).keys())


def _follow(ray: Any, dataset: Any, tracker: Any, shards: int, summary: JobSummary) -> None:
    """Collect the reports of all shards while the progress is shown."""
    reports: queue.Queue[ShardReport | BaseException | None] = queue.Queue()

    def collect() -> None:
        try:
            for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0):
                for report in batch["report"]:
                    reports.put(report)
            reports.put(None)
        except BaseException as error:
            reports.put(error)

    threading.Thread(target=collect, daemon=True, name="reports").start()
    begun = time.monotonic()
    with ProgressBar(unit="shards", total=shards, plain_every=max(1, shards // 20)) as progress:
        done = 0
        while True:
            try:
                report = reports.get(timeout=POLL)
                if report is None:
                    return
                if isinstance(report, BaseException):
                    raise report
                summary.add(report)
                done += 1
                if report.problem:
                    progress.clear()
                    say(f"captioner: {report.problem}")
            except queue.Empty:
                pass
            pictures, again = ray.get(tracker.state.remote())
            failures = summary.errors.total()
            parts = [f"{pictures:,} pictures, {pictures / (time.monotonic() - begun):.1f}/s"]
            parts += [f"{failures:,} failed"] if failures else []
            parts += [f"{again:,} shards begun again"] if again else []
            progress.show(done, text="shards, " + ", ".join(parts))


@contextmanager
def _connected(pool: RayPool) -> Iterator[Any]:
    """The module ray, connected to a cluster. One that runs on this machine only for the job is stopped at its end."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import: Ray reads it there
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its warnings on standard error are for Ray's developers
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise UsageError(f"this needs the package ray ({error}): {install_command('scale')}") from None
    ours = not ray.is_initialized()
    if ours:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if pool.address is None and "RAY_ADDRESS" not in os.environ:
            options |= {"num_cpus": processors(), "include_dashboard": False}
        try:
            ray.init(pool.address, **options)
        except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
            raise UsageError(f"--address {pool.address}: no Ray cluster could be reached ({error})") from None
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _room(ray: Any, cpus_per_actor: int) -> int:
    """The actors that fit on the nodes of the cluster."""
    fitting = sum(int(node["Resources"].get("CPU", 0) // cpus_per_actor) for node in ray.nodes() if node["Alive"])
    if not fitting:
        raise UsageError(f"--cpus-per-actor {cpus_per_actor}: no node of the cluster has so many processors")
    return fitting


def _absolute(shard: Shard) -> Shard:
    """The shard with a path that does not depend on the folder that a worker runs in."""
    if is_address(shard.location):
        return shard
    return replace(shard, location=str(Path(shard.location).absolute()))


def _cause(error: Exception) -> str:
    """The last line of an error, which Ray wraps into tracebacks."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
