"""What must be true of the outputs, with the truth taken from the tar files and from the command line."""

from __future__ import annotations

import tarfile
from collections import Counter
from pathlib import Path

import pyarrow.parquet


def pictures_of(shard: Path) -> list[str]:
    """The keys of the pictures in a tar shard, read with tarfile alone. A cut one ends where tarfile fails."""
    keys = []
    with shard.open("rb") as file, tarfile.open(fileobj=file) as tar:
        try:
            for member in tar:
                folder, slash, last = member.name.rpartition("/")
                key, _, ending = last.partition(".")
                if not ending.endswith(("txt", "json")):
                    keys.append(f"{folder}{slash}{key}")
        except tarfile.ReadError:
            pass
    return keys


def problems(shards: Path, output: Path, reference: Path, first_seen: dict[str, tuple[int, int]]) -> list[str]:
    """Sentences about everything that is wrong; empty if all is well.

    `reference` has the outputs of `captioner caption`. `first_seen` has inode and time of each output when it appeared.
    """
    found = []
    for shard in sorted(shards.glob("*.tar")):
        if shard.name == "junk.tar":  # no tar file
            found += ["junk.tar has an output"] * (output / "junk.parquet").exists()
            continue
        file = output / f"{shard.stem}.parquet"
        if not file.exists():
            found.append(f"{shard.name} has no output")
            continue
        rows = pyarrow.parquet.read_table(file).to_pylist()
        keys, counted = Counter(pictures_of(shard)), Counter(row["key"] for row in rows)
        if keys != counted:
            found.append(f"{shard.name}: {len(keys - counted)} pictures without a row, {len(counted - keys)} too many")
        if rows != pyarrow.parquet.read_table(reference / file.name).to_pylist():
            found.append(f"{shard.name}: its rows differ from those of captioner caption")
        if any((row["caption"] is None) == (row["error"] is None) for row in rows):
            found.append(f"{shard.name}: a row has neither or both of caption and error")
        if shard.name == "noise.tar" and any(row["caption"] is not None for row in rows):
            found.append("noise.tar: noise has a caption")
        if first_seen.get(file.name, identity(file)) != identity(file):
            found.append(f"{shard.name} was captioned again after it was finished")
    left = [path.name for path in output.iterdir() if path.suffix != ".parquet" and not path.name.startswith("_")]
    return found + ([f"files that are left over: {', '.join(left)}"] if left else [])


def identity(file: Path) -> tuple[int, int]:
    """What changes when a file is written again."""
    status = file.stat()
    return status.st_ino, status.st_mtime_ns
