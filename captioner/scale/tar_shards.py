"""Webdataset shards: tar files whose members key.jpg, key.json, key.txt, … are one sample.

A tar is read from its beginning to its end, member by member, and never unpacked. So it may be a stream.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from typing import IO

from captioner.errors import CaptionerError
from captioner.images.decoding import SUFFIXES
from captioner.images.file_kinds import HEADER, kind_of
from captioner.images.inputs import PictureBytes
from captioner.scale.locations import store_errors
from captioner.scale.samples import (
    LARGEST,
    DamagedShard,
    Member,
    Sample,
    UnreadPicture,
    picture_bytes,
    too_large,
    unreadable,
)

# A sample with more files or bytes is divided, so that a shard of names such as video.00001.jpg is never in memory.
SAMPLE_FILES = 100
SAMPLE_BYTES = 64_000_000

_CHUNK = 1 << 20
_PARSING = (ValueError, OverflowError, EOFError, LookupError)  # of tarfile, on damaged headers


class _ForwardFile:
    """A file that is only read forwards, which remembers its last block.

    tarfile takes a damaged or missing header for the end of the archive; the block tells whether it was one.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name, self._position = file, name, 0
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        parts = []
        while size < 0 or size > 0:  # a store may return less than was asked for
            part = self._part(size)
            if not part:
                break
            parts.append(part)
            size -= len(part) if size > 0 else 0
        self.last = b"".join(parts)
        self._position += len(self.last)
        return self.last

    def _part(self, size: int) -> bytes:
        with store_errors(self._name):  # else tarfile takes some of them for damage of the file
            return self._file.read(size)

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = 0) -> int:
        if whence or position < self._position:
            raise OSError("a tar shard is read forwards only")
        while self._position < position:
            if not self.read(min(_CHUNK, position - self._position)):
                break
        return self._position


def read_tar(file: IO[bytes], name: str, *, with_members: bool) -> Iterator[Sample]:
    """The samples of a tar shard, in order. DamagedShard after the last one that could be read.

    Without `with_members`, only pictures are read; the other files are skipped.
    """
    source = _ForwardFile(file, name)
    try:
        tar = tarfile.TarFile(fileobj=source)  # type: ignore[arg-type]
    except (tarfile.TarError, *_PARSING) as error:
        raise CaptionerError(f"{name}: not a tar file that can be read ({error})") from None
    sample = _Parts("")
    damage = ""
    while not damage:
        try:
            info = tar.next()
        except (tarfile.TarError, *_PARSING) as error:
            damage = f"it is damaged or cut off after byte {source.tell():,} ({error})"
            break
        if info is None:
            break
        tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps all of them
        if not info.isfile():
            continue
        if _key(info.name) != sample.key:
            yield from sample.samples()
            sample = _Parts(_key(info.name))
        elif sample.is_full(info.name):
            yield from sample.samples(is_divided=True)
            sample = sample.rest()
        try:
            sample.add(tar, info, with_members=with_members)
        except tarfile.ReadError:
            damage = f"it is cut off inside {info.name}"
            sample.add_cut(info.name)
    yield from sample.samples()
    if not damage and source.last.strip(b"\0"):
        damage = f"it is damaged after byte {source.tell():,}: there is no header of a file"
    if not damage and len(source.last) < tarfile.BLOCKSIZE:
        damage = f"it is cut off after byte {source.tell():,}: the end of a tar file is missing"
    if damage:
        raise DamagedShard(f"{name}: {damage}")


class _Parts:
    """The files of one sample, while they are read. `rest` continues a sample that is divided after a stem."""

    def __init__(self, key: str, divided_after: str | None = None) -> None:
        self.key = key
        self._members: list[tuple[Member, int | None]] = []  # with the number of the picture that it is
        self._pictures: list[tuple[str, PictureBytes | UnreadPicture]] = []
        self._files = self._bytes = 0
        self._last_stem = ""
        self._divided_after = divided_after

    def is_full(self, name: str) -> bool:
        """Whether the sample is divided before this file.

        Files that differ only in their endings stay together, unless there are very many.
        """
        if _stem(name) != self._last_stem:
            return self._files >= SAMPLE_FILES or self._bytes >= SAMPLE_BYTES
        return self._files >= 2 * SAMPLE_FILES or self._bytes >= 2 * LARGEST

    def rest(self) -> _Parts:
        """The next part of this sample, which is divided."""
        return _Parts(self.key, self._last_stem)

    def add(self, tar: tarfile.TarFile, info: tarfile.TarInfo, *, with_members: bool) -> None:
        """Read a member, as far as it is needed."""
        self._files += 1
        self._bytes += info.size
        self._last_stem = _stem(info.name)
        if info.size > LARGEST:
            if with_members:
                raise CaptionerError(
                    f"{info.name}: {info.size:,} bytes are too many to be copied (limit {LARGEST:,}); "
                    "use --format parquet"
                )
            if _is_picture(info.name, b""):
                self._pictures.append((info.name, too_large(info.name, info.size)))
            return
        file = tar.extractfile(info)
        assert file is not None  # only files get here
        header = file.read(HEADER)
        is_picture = _is_picture(info.name, header)
        if not (is_picture or with_members):
            return
        data = header + file.read()
        if is_picture:
            picture = picture_bytes(info.name, data)
            self._pictures.append((info.name, picture))
            data = picture if isinstance(picture, PictureBytes) else data  # one copy in memory
        if with_members:
            number = len(self._pictures) - 1 if is_picture else None
            self._members.append((Member(info.name, data, info.mtime), number))

    def add_cut(self, name: str) -> None:
        """A file whose rest is missing."""
        if _is_picture(name, b""):
            self._pictures.append((name, unreadable(name, "the shard is cut off inside this picture")))

    def samples(self, *, is_divided: bool = False) -> Iterator[Sample]:
        """One sample per picture, each with the files that are named after it. The first one has the other files.

        With `is_divided`, more files of the sample follow.
        """
        keys = self._keys(is_divided=is_divided or self._divided_after is not None)
        members: list[list[Member]] = [[] for _ in keys or [""]]
        for member, number in self._members:
            members[_owner(member.name, keys) if number is None else number].append(member)
        if not self._pictures and self._members:
            yield Sample(self.key, None, tuple(members[0]))
        for key, (_, picture), own in zip(keys, self._pictures, members, strict=False):
            yield Sample(key, picture, tuple(own))

    def _keys(self, *, is_divided: bool) -> list[str]:
        """The key of each picture: that of the sample, or where there are several, as much of its name as they need."""
        names = [name for name, _ in self._pictures]
        if len(names) == 1 and not is_divided:
            return [self.key]
        stems = [_stem(name) for name in names]
        return stems if len({*stems, self._divided_after}) == len(stems) + 1 else names


def _owner(name: str, keys: Sequence[str]) -> int:
    """The number of the picture that a file is named after; the first one if there is none."""
    matching = [number for number, key in enumerate(keys) if name.startswith(f"{key}.")]
    return max(matching, key=lambda number: len(keys[number]), default=0)


def _is_picture(name: str, header: bytes) -> bool:
    """Whether a member is named like a picture, or is one. Hidden files are what systems leave beside the files."""
    last = name.rpartition("/")[2]
    return not last.startswith(".") and (last.lower().endswith(SUFFIXES) or kind_of(header, last).holds_picture)


def _key(name: str) -> str:
    """The name up to the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"


def _stem(name: str) -> str:
    """The name without its last ending."""
    return name.rpartition(".")[0] or name
