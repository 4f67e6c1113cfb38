"""Finding shards: which files of pictures a command line names, how they are divided, and what is done already."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, get_args

from captioner.errors import CaptionerError, UsageError
from captioner.scale.locations import expanded, files_in, folder_of, inside, is_address, last_part, open_input

ShardKind = Literal["tar", "parquet", "metadata", "list"]
ShardFormat = Literal["parquet", "webdataset"]
FORMATS: tuple[ShardFormat, ...] = get_args(ShardFormat)
CaptionMember = Literal["txt", "json"]  # where a webdataset shard has its captions
CAPTION_MEMBERS: tuple[CaptionMember, ...] = get_args(CaptionMember)
SUFFIXES: dict[ShardFormat, str] = {"parquet": ".parquet", "webdataset": ".tar"}  # of outputs

# A list has no natural shards, so it is divided. docs/scale-out.md has the simulation that chose the number.
SHARD_SIZE = 2000
METADATA = "metadata.jsonl"  # in a folder of pictures, as Hugging Face's imagefolder has it

_KINDS: dict[str, ShardKind] = {".tar": "tar", ".parquet": "parquet", ".txt": "list", ".jsonl": "metadata"}


@dataclass(frozen=True)
class Shard:
    """Pictures that are captioned together, and whose rows are one output.

    `name` is the output's name without its ending. A part of a list has the `offset` of its first line in bytes, the
    number of lines before it, and its own number of lines.
    """

    location: str
    kind: ShardKind
    name: str
    size: int = 0  # bytes, or pictures of a part: what shards of one kind are compared by
    offset: int = 0
    before: int = 0
    lines: int | None = None

    def output(self, folder: str, format: ShardFormat) -> str:
        """The file of this shard's captions."""
        return inside(folder, self.name + SUFFIXES[format])


def is_shard(argument: str) -> bool:
    """Whether a name is that of a tar or Parquet file, which never is a picture."""
    return _kind(argument) in ("tar", "parquet")


def find_shards(arguments: Sequence[str], *, shard_size: int = SHARD_SIZE) -> list[Shard]:
    """The shards in the order of the arguments. No shard, or two with the same name, is an error.

    An argument is a tar file, a Parquet file, a list of paths (.txt), a metadata.jsonl or the folder that has one, a
    folder of tar or Parquet files, or a pattern of these. Lists are divided into parts of `shard_size` lines.
    """
    shards = [
        shard
        for argument in arguments
        for location in expanded(argument)
        for whole in _in_argument(location)
        for shard in (_parts(whole, shard_size) if whole.kind in ("list", "metadata") else [whole])
    ]
    seen: dict[str, Shard] = {}
    for shard in shards:
        other = seen.setdefault(shard.name, shard)
        if other is not shard:
            raise UsageError(
                f"{other.location} and {shard.location} would have the same output, {shard.name}: caption them in two "
                "runs with an --output each"
            )
    if not shards:
        raise UsageError(f"no shard to caption: {', '.join(arguments)}")
    return shards


def unfinished(shards: Sequence[Shard], output: str, format: ShardFormat) -> list[Shard]:
    """The shards that have no output yet."""
    present = files_in(output)
    starts = {shard.name for shard in shards}
    for location in dict.fromkeys(shard.location for shard in shards if shard.lines is not None):
        stem = _stem(location)
        odd = [name for name in present if name.endswith(SUFFIXES[format]) and _is_other_part(name, stem, starts)]
        if odd:
            raise UsageError(
                f"{output} has parts of {location} that were divided differently ({odd[0]}): give the --shard-size of "
                "the first run, or another --output"
            )
    return [shard for shard in shards if last_part(shard.output(output, format)) not in present]


def largest_first(shards: Iterable[Shard]) -> list[Shard]:
    """Large shards first, so that the last ones to finish are small and no worker waits long at the end."""
    return sorted(shards, key=lambda shard: -shard.size)


def with_sizes(shards: Sequence[Shard]) -> list[Shard]:
    """The shards with the sizes of their files, from one listing of each folder."""
    folders: dict[str, dict[str, int]] = {}
    result = []
    for shard in shards:
        folder = folder_of(shard.location)
        if shard.lines is not None or shard.location.startswith(("http://", "https://")):
            result.append(shard)
            continue
        if folder not in folders:
            folders[folder] = files_in(folder)
        result.append(replace(shard, size=folders[folder].get(last_part(shard.location), 0)))
    return result


def _in_argument(location: str) -> Iterator[Shard]:
    kind = _kind(location)
    if kind is not None:
        yield Shard(location, kind, _stem(location))
        return
    if is_address(location) and "." in last_part(location):
        raise UsageError(f"{location}: not a shard: it ends in none of {', '.join(_KINDS)}")
    names = sorted(files_in(location))
    if METADATA in names:
        metadata = inside(location, METADATA)
        yield Shard(metadata, "metadata", _stem(metadata))
        return
    if not is_address(location) and Path(location).is_file():
        raise UsageError(
            f"{location}: not a shard: it ends in none of {', '.join(_KINDS)}. For single pictures, use captioner "
            "caption with a file as --output"
        )
    inner = [name for name in names if is_shard(name) and not name.startswith(".")]
    if not inner:
        exists = is_address(location) or Path(location).exists()
        raise UsageError(
            f"{location}: no shards here (tar or Parquet files, or a {METADATA}). For a folder of pictures, write a "
            "list of their paths to a .txt file and give that"
            if exists
            else f"{location}: no such file or folder"
        )
    for name in inner:
        yield Shard(inside(location, name), "tar" if name.endswith(".tar") else "parquet", _stem(name))


def _kind(name: str) -> ShardKind | None:
    last = last_part(name).lower()
    return next((kind for suffix, kind in _KINDS.items() if last.endswith(suffix)), None)


def _stem(location: str) -> str:
    """The name of a shard; that of a metadata.jsonl is its folder's."""
    last = last_part(location)
    if last == METADATA:
        folder = folder_of(location)
        return last_part(folder) if is_address(folder) else last_part(os.path.abspath(folder)) or "metadata"  # noqa: PTH100 (links keep their names)
    return last.rpartition(".")[0] or last


def _parts(whole: Shard, shard_size: int) -> Iterator[Shard]:
    """The list in parts, each named by the number of its first line. A short list is one part."""
    try:
        with open_input(whole.location) as file:
            starts = list(_starts(file, shard_size))
    except OSError as error:
        raise CaptionerError(f"{whole.location}: {error.strerror or 'no such file'}") from None
    for offset, before, lines in starts:
        name = f"{whole.name}-{before:09d}"
        yield replace(whole, name=name, size=lines, offset=offset, before=before, lines=lines)


def _starts(file: IO[bytes], shard_size: int) -> Iterator[tuple[int, int, int]]:
    """Offset, lines before and number of lines of each part. An empty list is one empty part."""
    start = offset = number = 0
    for line in file:
        if number and number % shard_size == 0:
            yield start, number - shard_size, shard_size
            start = offset
        offset += len(line)
        number += 1
    rest = number % shard_size or min(number, shard_size)
    yield start, number - rest, rest


def _is_other_part(name: str, stem: str, known: set[str]) -> bool:
    bare = name.rpartition(".")[0]
    number = bare.removeprefix(f"{stem}-")
    return bare not in known and number != bare and len(number) == 9 and number.isdecimal()
