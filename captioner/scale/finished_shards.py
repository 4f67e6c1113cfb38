"""What an output folder says: how its captions were made, and how many a finished shard has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import IO, Any

from captioner.errors import UsageError
from captioner.scale.damage_notes import read_note
from captioner.scale.locations import files_in, inside, is_address, last_part, open_input, open_output, store_errors
from captioner.scale.rows import error_group
from captioner.scale.shard_captioning import ShardReport, ShardSettings
from captioner.scale.shards import Shard
from captioner.scale.tar_shards import read_tar
from captioner.text.json_text import to_json
from captioner.writers.parquet_writer import pyarrow_library

ORIGIN_FILE = "_captioner.json"  # in the output folder; says how all of its captions were made

_SAME = ("captioner.weights", "captioner.backend", "captioner.search")


def check_same_origin(finished: Sequence[str], others: Sequence[str], output: str, origin: Mapping[str, str]) -> None:
    """Refuse to mix captions of several models or search options in a folder.

    `finished` are the outputs that the job leaves as they are, `others` the outputs of other shards in the folder.
    """
    if not (finished or others):
        return
    known = read_origin(output)
    how = "choose another --output, or replace all outputs with --overwrite"
    if known is None:
        if finished:
            raise UsageError(f"{output}: nothing says how {finished[0]} was made ({ORIGIN_FILE} is missing): {how}")
        return  # files of another kind, which happen to be there
    for key in _SAME:
        if known.get(key) != origin[key]:
            what, value = key.partition(".")[2], known.get(key) or "unknown"
            raise UsageError(
                f"{output} has captions that were made with other settings ({what}: {value}, now {origin[key]}): "
                f"continue with those, {how}"
            )


def read_origin(output: str) -> dict[str, Any] | None:
    """How the captions of a folder were made. None if nothing tells."""
    try:
        with open_input(inside(output, ORIGIN_FILE)) as file:
            values = json.loads(file.read())
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def write_origin(output: str, origin: Mapping[str, str]) -> None:
    """Note how the captions of a folder are made, unless it is noted."""
    known = read_origin(output) or {}
    if any(known.get(key) != origin[key] for key in _SAME):
        location = inside(output, ORIGIN_FILE)
        with store_errors(location) if is_address(location) else nullcontext(), open_output(location) as file:
            file.write(f"{to_json(dict(origin), indent=1)}\n".encode())


def report_of_output(shard: Shard, output: str, settings: ShardSettings) -> ShardReport | None:
    """The report of a shard whose worker was lost after it had written the output. None if there is no output."""
    name = shard.output(output, settings.format)
    present = files_in(output)
    if last_part(name) not in present:
        return None
    with open_input(name) as file:
        if settings.format == "parquet":
            found: list[str | None] = pyarrow_library().read_table(file, columns=["error"])["error"].to_pylist()
        else:
            found = list(_errors_in_tar(file, name, settings))
    errors = Counter(error_group(error) for error in found if error is not None)
    return ShardReport(shard.name, len(found), errors, problem=read_note(shard, output, present))


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
