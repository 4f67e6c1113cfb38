"""Sample: one picture of a shard with its key, and what stands beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from captioner.errors import CaptionerError, UsageError
from captioner.images.inputs import PictureBytes
from captioner.scale.locations import open_input

LARGEST = 256_000_000  # bytes of an encoded picture
PAUSES = (1.0, 3.0)  # seconds between the attempts to fetch a picture from a store
BATCH_BYTES = 64_000_000  # a batch with more bytes is complete, whatever its number of pictures


class DamagedShard(CaptionerError):
    """A shard whose rest cannot be read. What came before it is captioned."""


class UnreadPicture:
    """A picture that is read, or refused, in a reading thread of the stream."""

    def __init__(self, name: str, read: Callable[[], bytes]) -> None:
        self.name, self.read = name, read


@dataclass(frozen=True)
class Member:
    """A file of a webdataset sample, as it is copied to the output."""

    name: str
    data: bytes
    modified: float = 0.0


@dataclass(frozen=True)
class Sample:
    """A picture of a shard. `members` are the files of its webdataset sample; the first picture of a sample has them.

    Without a picture, a sample has no row: its members are only copied.
    """

    key: str
    picture: str | PictureBytes | UnreadPicture | None
    members: tuple[Member, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in memory."""
        own = len(self.picture) if isinstance(self.picture, PictureBytes) else 0
        return max(own, sum(len(member.data) for member in self.members))


def picture_bytes(name: str, data: bytes) -> PictureBytes | UnreadPicture:
    """An encoded picture with its name in messages."""
    if not data:
        return unreadable(name, "the picture has no bytes")
    picture = PictureBytes(data)
    picture.name = name
    return picture


def unreadable(name: str, reason: str) -> UnreadPicture:
    """A picture that gives a row with this error."""

    def refuse() -> bytes:
        raise CaptionerError(f"{name}: {reason}")

    return UnreadPicture(name, refuse)


def too_large(name: str, size: int) -> UnreadPicture:
    return unreadable(name, f"{size:,} bytes are more than the limit of {LARGEST:,} for an encoded picture")


def stored_picture(name: str, address: str) -> UnreadPicture:
    """A picture in a store, which is fetched when its turn comes."""

    def fetch() -> bytes:
        with open_input(address) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UsageError(f"{name}: more than {LARGEST:,} bytes, the limit for an encoded picture")
        return data

    def fetch_again() -> bytes:
        for pause in PAUSES:
            try:
                return fetch()
            except (UsageError, FileNotFoundError, PermissionError):
                raise
            except Exception:  # the store or the network, which may work in a moment
                time.sleep(pause)
        return fetch()

    return UnreadPicture(name, fetch_again)


def batches(samples: Iterable[Sample], size: int) -> Iterator[list[Sample]]:
    """Lists of up to `size` pictures and some megabytes.

    They depend on the shard alone, never on time or on the number of threads: so its captions don't, either.
    """
    batch: list[Sample] = []
    taken = 0
    for sample in samples:
        batch.append(sample)
        taken += sample.size
        if len(batch) == size or taken >= BATCH_BYTES:
            yield batch
            batch, taken = [], 0
    if batch:
        yield batch
