"""What an output shard that exists says: how its captions were made, and how many it has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from captioner.errors import UsageError
from captioner.scale.locations import files_in, last_part, open_input
from captioner.scale.rows import error_group
from captioner.scale.shard_captioning import ShardReport, ShardSettings
from captioner.scale.shards import Shard
from captioner.scale.tar_shards import read_tar
from captioner.writers.parquet_writer import pyarrow_library

_SAME = ("captioner.weights", "captioner.backend", "captioner.search")


def check_same_origin(finished: Sequence[Shard], output: str, format: str, origin: Mapping[str, str]) -> None:
    """Refuse to continue a job with another model or other search options. Parquet files tell; one is enough."""
    if format != "parquet" or not finished:
        return
    name = finished[0].output(output, "parquet")
    with open_input(name) as file:
        metadata = pyarrow_library().read_schema(file).metadata or {}
    for key in _SAME:
        value = metadata.get(key.encode(), b"").decode()
        if value != origin[key]:
            what = key.partition(".")[2]
            raise UsageError(
                f"{name} was made with other settings ({what}: {value or 'unknown'}, now {origin[key]}): continue with "
                "those, choose another --output, or replace all with --overwrite"
            )


def report_of_output(shard: Shard, output: str, settings: ShardSettings) -> ShardReport | None:
    """The report of a shard whose worker was lost after it had written the output. None if there is no output."""
    name = shard.output(output, settings.format)
    if last_part(name) not in files_in(output):
        return None
    with open_input(name) as file:
        if settings.format == "parquet":
            found: list[str | None] = pyarrow_library().read_table(file, columns=["error"])["error"].to_pylist()
        else:
            found = list(_errors_in_tar(file, name, settings))
    errors = Counter(error_group(error) for error in found if error is not None)
    return ShardReport(shard.name, len(found), errors)


def _errors_in_tar(file: IO[bytes], name: str, settings: ShardSettings) -> Iterator[str | None]:
    """For each picture its error, or None."""
    for sample in read_tar(file, name, with_members=True):
        for member in sample.members:
            if settings.captions_in == "json":
                if member.name.endswith(".json") and "captioner" in (values := json.loads(member.data)):
                    yield values["captioner"]["error"]
            elif member.name.endswith(".caption.txt"):
                yield None
            elif member.name.endswith(".error.txt"):
                yield member.data.decode()
