"""What an output folder says: how its captions were made, and how many a finished shard has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from captioner.errors import UsageError
from captioner.scale.damage_notes import read_note
from captioner.scale.locations import files_in, inside, last_part, open_input, open_output, read_whole, store_errors
from captioner.scale.rows import error_group
from captioner.scale.shard_captioning import ShardReport, ShardSettings
from captioner.scale.shards import SUFFIXES, Shard, ShardFormat
from captioner.scale.tar_shards import read_tar
from captioner.text.json_text import to_json
from captioner.writers.parquet_writer import pyarrow_library

ORIGIN_FILE = "_captioner.json"  # in the output folder; says how all of its captions were made

_SEARCH = "captioner.search"  # JSON of all search options
_CAPTIONS_IN = "captioner.captions_in"  # of webdataset outputs only
_SAME = ("captioner.weights", "captioner.backend", _SEARCH, _CAPTIONS_IN)


def check_same_origin(
    finished: Sequence[str], others: Sequence[str], output: str, origin: Mapping[str, str], format: ShardFormat
) -> None:
    """Refuse to mix captions of several models or settings in a folder.

    `finished` are the outputs that the job leaves as they are, `others` all other outputs in the folder: of other
    shards, or in another format.
    """
    kept = [*finished, *others]
    if not kept:
        return
    known = read_origin(output)
    how = _ways_out(others, format)
    if known is None:
        raise UsageError(f"{output}: nothing says how {kept[0]} was made ({ORIGIN_FILE} is missing): {how}")
    if not any(name.endswith(SUFFIXES["webdataset"]) for name in kept):
        known = {key: value for key, value in known.items() if key != _CAPTIONS_IN}
        origin = {key: value for key, value in origin.items() if key != _CAPTIONS_IN}
    if differences := _differences(known, origin):
        raise UsageError(
            f"{output} has captions that were made with other settings ({', '.join(differences)}): "
            f"continue with those, {how}"
        )


def _ways_out(others: Sequence[str], format: ShardFormat) -> str:
    if any(not name.endswith(SUFFIXES[format]) for name in others):
        return "choose another --output for this format"
    if others:
        return (
            "choose another --output, or replace all outputs: name all their shards, also that of "
            f"{others[0]}, with --overwrite"
        )
    return "choose another --output, or replace all outputs with --overwrite"


def _differences(known: Mapping[str, Any], origin: Mapping[str, str]) -> list[str]:
    """What differs of the settings that all captions of a folder share: "beam: 5, now 3"."""
    before, now = _settings(known), _settings(origin)
    return [
        f"{name}: {before.get(name, 'unknown')}, now {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]


def _settings(origin: Mapping[str, Any]) -> dict[str, str]:
    """The settings that all captions of a folder share, by the names of their options."""
    values = {key.partition(".")[2]: origin[key] for key in _SAME if key in origin and key != _SEARCH}
    with suppress(ValueError, TypeError, RecursionError):  # without it, every option is unknown
        values |= json.loads(origin.get(_SEARCH, "{}"))
    return {
        name.replace("_", "-"): value if isinstance(value, str) else to_json(value) for name, value in values.items()
    }


def read_origin(output: str) -> dict[str, Any] | None:
    """How the captions of a folder were made. None if nothing tells."""
    try:
        values = json.loads(read_whole(inside(output, ORIGIN_FILE)))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def write_origin(output: str, origin: Mapping[str, str]) -> None:
    """Note how the captions of a folder are made, unless it is noted."""
    known = read_origin(output) or {}
    if any(known.get(key) != origin[key] for key in _SAME if key in origin):
        origin = {**known, **origin}  # a job that writes tables keeps what is noted of webdataset outputs
        location = inside(output, ORIGIN_FILE)
        with store_errors(location, "written to"), open_output(location) as file:
            file.write(f"{to_json(dict(origin), indent=1)}\n".encode())


def report_of_output(shard: Shard, output: str, settings: ShardSettings) -> ShardReport | None:
    """The report of a shard whose worker was lost after it had written the output. None if there is no output."""
    name = shard.output(output, settings.format)
    present = files_in(output)
    if last_part(name) not in present:
        return None
    with store_errors(name), open_input(name) as file:
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
