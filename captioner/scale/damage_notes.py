"""Notes about damaged shards: a file beside the output, so that a later run, which leaves the shard out, names it too.

Its name begins with "_": readers of tables such as pyarrow and Spark take no such file for a part of the table.
"""

from __future__ import annotations

from collections.abc import Container

from captioner.scale.locations import inside, last_part, open_output, read_whole
from captioner.scale.shards import Shard


def note_location(shard: Shard, output: str) -> str:
    return inside(output, f"_{shard.name}.damaged.txt")


def write_note(shard: Shard, output: str, damage: str) -> None:
    with open_output(note_location(shard, output)) as file:
        file.write(f"{damage}\n".encode(errors="backslashreplace"))


def read_note(shard: Shard, output: str, present: Container[str]) -> str:
    """What is wrong with a finished shard; empty if nothing is. `present` are the files of the output folder."""
    location = note_location(shard, output)
    if last_part(location) not in present:
        return ""
    return read_whole(location).decode(errors="replace").strip()
