"""Webdataset shards: tar files whose members key.jpg, key.json, key.txt, … are one sample.

A tar is read from its beginning to its end, member by member, and never unpacked. So it may be a stream.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO

from captioner.errors import CaptionerError
from captioner.images.decoding import SUFFIXES
from captioner.images.file_kinds import HEADER, kind_of
from captioner.images.inputs import PictureBytes
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

_CHUNK = 1 << 20
_PARSING = (ValueError, OverflowError, EOFError, LookupError)  # of tarfile, on damaged headers


class _ForwardFile:
    """A file that is only read forwards, which remembers its last block.

    tarfile takes a damaged or missing header for the end of the archive; the block tells whether it was one.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._position = file, 0
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        parts = []
        while size < 0 or size > 0:  # a store may return less than was asked for
            part = self._file.read(size)
            if not part:
                break
            parts.append(part)
            size -= len(part) if size > 0 else 0
        self.last = b"".join(parts)
        self._position += len(self.last)
        return self.last

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
    source = _ForwardFile(file)
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
    """The files of one sample, while they are read."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._members: list[Member] = []
        self._pictures: list[tuple[str, PictureBytes | UnreadPicture]] = []

    def add(self, tar: tarfile.TarFile, info: tarfile.TarInfo, *, with_members: bool) -> None:
        """Read a member, as far as it is needed."""
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
            self._pictures.append((info.name, picture_bytes(info.name, data)))
        if with_members:
            self._members.append(Member(info.name, data, info.mtime))

    def add_cut(self, name: str) -> None:
        """A file whose rest is missing."""
        if _is_picture(name, b""):
            self._pictures.append((name, unreadable(name, "the shard is cut off inside this picture")))

    def samples(self) -> Iterator[Sample]:
        """One sample per picture. Where there are several, their keys have the second part of the name too."""
        members = tuple(self._members)
        if not self._pictures and members:
            yield Sample(self.key, None, members)
        for name, picture in self._pictures:
            key = self.key if len(self._pictures) == 1 else name.rpartition(".")[0]
            yield Sample(key, picture, members)
            members = ()


def _is_picture(name: str, header: bytes) -> bool:
    """Whether a member is named like a picture, or is one. Hidden files are what systems leave beside the files."""
    last = name.rpartition("/")[2]
    return not last.startswith(".") and (last.lower().endswith(SUFFIXES) or kind_of(header, last).holds_picture)


def _key(name: str) -> str:
    """The name up to the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"
