"""A captioning job: which shards are left, and its run on this machine. `ray_job` runs it on a cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from captioner.errors import UsageError
from captioner.files.atomic import sweep
from captioner.progress import ProgressBar
from captioner.scale.damage_notes import note_location, read_note
from captioner.scale.finished_shards import check_same_origin, write_origin
from captioner.scale.job_summary import JobSummary
from captioner.scale.locations import files_in, folder_of, is_address, last_part, remove_outputs
from captioner.scale.shard_captioning import ShardCaptioner, ShardSettings
from captioner.scale.shards import SUFFIXES, Shard, find_shards, unfinished
from captioner.terminal import say
from captioner.writers.parquet_writer import pyarrow_library


@dataclass(frozen=True)
class Job:
    """The shards of a job, divided by whether they have an output, and how their captions are made."""

    left: Sequence[Shard]
    finished: Sequence[Shard]
    output: str
    settings: ShardSettings
    overwrite: bool = False  # outputs that exist are made again

    def load(self) -> ShardCaptioner:
        """The job's model. Refuses wrong options, and a folder whose captions were made with others."""
        if self.settings.format == "parquet":
            pyarrow_library()  # refuses if it is missing
        captioner = ShardCaptioner(self.settings)
        finished = self._outputs(self.finished)
        known = {*finished, *self._outputs(self.left)}
        suffixes = tuple(SUFFIXES.values())  # one file says how the outputs of all formats were made
        others = [name for name in files_in(self.output) if name.endswith(suffixes) and name not in known]
        check_same_origin(finished, others, self.output, captioner.origin, self.settings.format)
        return captioner

    def summary(self, price_per_cpu_hour: float | None = None) -> JobSummary:
        """A summary that has what is known of the finished shards."""
        present = files_in(self.output)
        notes = [read_note(shard, self.output, present) for shard in self.finished]
        damaged = [note for note in notes if note]
        return JobSummary(len(self.finished), price_per_cpu_hour=price_per_cpu_hour, damaged=damaged)

    def prepare(self, origin: Mapping[str, str]) -> None:
        """Delete the outputs that are made again, and what killed writers left. Note how the captions are made.

        An output that exists is finished, for a later run and for the worker that repeats a lost one's shard. So an old
        one may not stay while the job runs.
        """
        present = files_in(self.output)
        names = [note_location(shard, self.output) for shard in self.left]
        if self.overwrite:
            names += [shard.output(self.output, self.settings.format) for shard in self.left]
        remove_outputs([name for name in names if last_part(name) in present])
        if not is_address(self.output):
            sweep(Path(self.output))
        if self.left:
            write_origin(self.output, origin)

    def _outputs(self, shards: Sequence[Shard]) -> list[str]:
        return [last_part(shard.output(self.output, self.settings.format)) for shard in shards]


def plan_job(
    inputs: Sequence[str], output: str, settings: ShardSettings, *, shard_size: int, overwrite: bool = False
) -> Job:
    """Find the shards and what is left to do. With `overwrite`, that is everything."""
    shards = find_shards(inputs, shard_size=shard_size)
    other = next((shard for shard in shards if shard.kind != "tar"), None)
    if settings.format == "webdataset" and other is not None:
        raise UsageError(f"{other.location}: --format webdataset copies tar shards; use --format parquet for this one")
    if output.startswith(("http://", "https://")):
        raise UsageError(f"--output {output}: nothing can be written to a web server")
    if not is_address(output) and Path(output).is_file():
        raise UsageError(f"--output {output} is a file; shards are written to a folder")
    beside = next((shard for shard in shards if _place(folder_of(shard.location)) == _place(output)), None)
    if beside is not None:  # an output could have the name of a shard, or be taken for one
        raise UsageError(f"--output {output} is the folder of {beside.location}; choose another one")
    left = shards if overwrite else unfinished(shards, output, settings.format)
    names = {shard.name for shard in left}
    return Job(left, [shard for shard in shards if shard.name not in names], output, settings, overwrite)


def _place(folder: str) -> str:
    return folder.rstrip("/") if is_address(folder) else str(Path(folder).resolve())


def caption_here(job: Job, captioner: ShardCaptioner, summary: JobSummary) -> None:
    """Caption shards on this machine one after the other, and say what is wrong with any."""
    job.prepare(captioner.origin)
    summary.cpus = captioner.captioner.threads
    started = time.monotonic()
    try:
        with ProgressBar("captioning") as progress:
            for shard in job.left:
                report = captioner.caption(shard, job.output, lambda more: progress.show(progress.done + more))
                summary.add(report)
                if report.problem:
                    progress.clear()
                    say(f"captioner: {report.problem}")
    finally:
        summary.seconds = time.monotonic() - started
