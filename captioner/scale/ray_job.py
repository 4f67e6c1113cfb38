"""A captioning job on a Ray cluster: one task per shard, on a pool of actors that each load the model once.

Ray Data runs the pool and repeats what a lost actor or node had begun. Its unit of failure is the block, and here a
block is one shard: a repeated shard replaces nothing but an unfinished output.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from captioner import __version__
from captioner.bundle.model_folders import find_model
from captioner.errors import CaptionerError, UsageError
from captioner.inference.model_loading import processors
from captioner.installation import install_command
from captioner.progress import ProgressBar
from captioner.scale.cluster_address import connect
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
        self._pictures = 0
        self._begun: dict[str, int] = {}
        self._reports: dict[str, ShardReport] = {}

    def begin(self, shard: str) -> tuple[int, ShardReport | None]:
        """How often the shard was begun, this time included, and its report if an earlier time finished it."""
        self._begun[shard] = self._begun.get(shard, 0) + 1
        return self._begun[shard], self._reports.get(shard)

    def advance(self, pictures: int) -> None:
        self._pictures += pictures

    def finish(self, report: ShardReport) -> None:
        self._reports.setdefault(report.name, report)

    def news(self, known: int) -> tuple[int, int, list[ShardReport]]:
        """Captioned pictures, how often a shard was begun again, and the reports after the first `known` ones."""
        again = sum(self._begun.values()) - len(self._begun)
        return self._pictures, again, list(islice(self._reports.values(), known, None))


class CaptionShard:
    """Captions the shards of a block. It is a callable class for `map_batches` and raises nothing on a bad shard."""

    def __init__(self, settings: ShardSettings, output: str, origin: dict[str, str], tracker: Any) -> None:
        if origin["captioner.version"] != __version__:
            raise UsageError(f"a node has captioner {__version__}, the job {origin['captioner.version']}")
        self._captioner, self._output, self._tracker = ShardCaptioner(settings), output, tracker
        if self._captioner.origin != origin:
            raise UsageError(f"a node has another model of the name {settings.model!r} than the job")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"shard": [self._caption(shard).name for shard in batch["shard"]]}

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
            except CaptionerError as error:
                report = ShardReport(shard.name, problem=str(error), is_finished=False)
            except Exception as error:  # a defect in one shard must not end the job
                problem = f"{shard.location}: {type(error).__name__}: {error}"
                report = ShardReport(shard.name, problem=problem, is_finished=False)
        ray.get(self._tracker.finish.remote(report))
        return report

    def _advance(self, pictures: int) -> None:
        self._tracker.advance.remote(pictures)


def caption_on_ray(job: Job, origin: dict[str, str], pool: RayPool, summary: JobSummary) -> None:
    """Caption shards on a cluster, large ones first, and show progress, throughput and failures.

    `origin` is that of the job's model here. A node whose model differs is refused.
    """
    # Workers run in other folders, so every path is absolute.
    settings = replace(
        job.settings,
        model=_absolute_model(job.settings.model),
        root=str(Path.cwd()),
        threads=job.settings.threads or pool.cpus_per_actor,
    )
    output = _absolute(job.output)
    shards = [replace(shard, location=_absolute(shard.location)) for shard in largest_first(with_sizes(job.left))]
    with _connected(pool) as ray:
        job.prepare(origin)
        actors = min(len(shards), pool.actors or _room(ray, pool.cpus_per_actor))
        summary.cpus = actors * pool.cpus_per_actor
        started = time.monotonic()
        on_head = {"num_cpus": 0, "scheduling_strategy": _head_node(ray)}
        tracker = ray.remote(**on_head)(Tracker).remote()
        # Ray Data cannot run in a client of a cluster (ray://…), so it runs in a task on the head node.
        run = ray.remote(**on_head)(_run_pool)
        running = run.remote(shards, (settings, output, origin, tracker), actors, pool.cpus_per_actor)
        try:
            _follow(ray, running, tracker, len(shards), summary)
        except ray.exceptions.RayError as error:
            how = "--resume instead of --overwrite" if job.overwrite else "--resume"
            raise CaptionerError(f"the job has failed; {how} continues it: {_cause(error)}") from error
        finally:
            summary.seconds = time.monotonic() - started
    finished = {last_part(shard.output(output, settings.format)) for shard in (*job.left, *job.finished)}
    remove_unfinished(output, finished & files_in(output).keys())


def _run_pool(shards: Sequence[Shard], arguments: tuple[Any, ...], actors: int, cpus_per_actor: int) -> None:
    """Caption all shards with a pool of actors. What comes of each is told to the tracker."""
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    blocks = min(len(shards), BLOCKS)
    dataset = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=blocks).map_batches(
        CaptionShard,
        fn_constructor_args=arguments,
        batch_size=1,
        # One task at a time: a second one would wait for a slow shard while other actors are idle.
        compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=1),
        num_cpus=cpus_per_actor,
    )
    for _ in dataset.iter_batches(batch_size=None):
        pass


def _follow(ray: Any, running: Any, tracker: Any, shards: int, summary: JobSummary) -> None:
    """Collect the reports of all shards while the progress is shown, until the pool has ended."""
    begun = time.monotonic()
    done = 0
    is_running = True
    with ProgressBar(unit="shards", total=shards, plain_every=max(1, shards // 20)) as progress:
        while is_running:
            is_running = not ray.wait([running], timeout=POLL)[0]
            pictures, again, reports = ray.get(tracker.news.remote(done))
            for report in reports:
                summary.add(report)
                done += 1
                if report.problem:
                    progress.clear()
                    say(f"captioner: {report.problem}")
            parts = [f"shards, {pictures:,} pictures, {pictures / (time.monotonic() - begun):.1f}/s"]
            parts += [f"{summary.errors.total():,} failed"] if summary.errors else []
            parts += [f"{again:,} shards begun again"] if again else []
            progress.show(done, text=", ".join(parts))
        ray.get(running)


@contextmanager
def _connected(pool: RayPool) -> Iterator[Any]:
    """The module ray, connected to a cluster. One that runs on this machine only for the job is stopped at its end."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import: Ray reads it there
    try:
        import ray
    except ImportError as error:
        raise UsageError(f"this needs the package ray ({error}): {install_command('scale')}") from None
    ours = not ray.is_initialized()
    if ours:
        address = pool.address or os.environ.get("RAY_ADDRESS") or "local"  # without it, Ray takes any cluster it finds
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            # On the loopback: nobody else on the network can reach a cluster that runs only for this job.
            options |= {"num_cpus": processors(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        connect(ray, address, options)
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


def _head_node(ray: Any) -> Any:
    """Where the parts of the job run that cannot be lost: without the head node, there is no cluster."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    head = next(node for node in ray.nodes() if "node:__internal_head__" in node["Resources"])
    return NodeAffinitySchedulingStrategy(head["NodeID"], soft=False)


def _absolute(location: str) -> str:
    return location if is_address(location) else str(Path(location).absolute())


def _absolute_model(model: str) -> str:
    """The model's folder, or its name, which each node looks up for itself."""
    return model if Path(model).name == model else str(find_model(model).absolute())


def _cause(error: Exception) -> str:
    """The last line of an error, which Ray wraps into tracebacks."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return re.sub(r"^captioner\.errors\.\w+: ", "", lines[-1].strip()) if lines else type(error).__name__
