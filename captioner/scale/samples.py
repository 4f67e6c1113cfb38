"""Sample: one picture of a shard with its key, and what stands beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from captioner.errors import CaptionerError, UsageError
from captioner.images.inputs import PictureBytes
from captioner.scale.locations import StoreError, is_on_web, open_input, store_errors

LARGEST = 256_000_000  # bytes of an encoded picture
PAUSES = (1.0, 3.0)  # seconds between the attempts to fetch a picture from a store
BATCH_BYTES = 64_000_000  # a batch with more bytes is complete, whatever its number of pictures


class DamagedShard(CaptionerError):
    """A shard whose rest cannot be read. What came before it is captioned."""


class UnreadPicture:
    """A picture that is read, or refused, in a reading thread of the stream."""

    def __init__(self, name: str, read: Callable[[], bytes]) -> None:
        self.name, self.read = name, read


class StoredPicture(UnreadPicture):
    """A picture in a store, which is fetched when its turn comes.

    If the store fails again and again, that is an error of this picture too, and `outage` says so.
    """

    def __init__(self, name: str, address: str) -> None:
        super().__init__(name, self._fetch_again)
        self.address, self.outage = address, ""

    @property
    def web_server(self) -> str:
        """The web server that has the picture; empty if it is in a store of another kind."""
        return urlsplit(self.address).netloc if is_on_web(self.address) else ""

    def _fetch_again(self) -> bytes:
        for pause in (*PAUSES, None):
            try:
                return self._fetch()
            except StoreError as error:
                if pause is None:
                    self.outage = str(error)
                    raise StoreError(f"{self.name}: {self.outage.removeprefix(f'{self.address}: ')}") from error
                time.sleep(pause)  # it may work in a moment
        raise AssertionError("the last attempt returns or raises")

    def _fetch(self) -> bytes:
        with store_errors(self.address), open_input(self.address) as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise UsageError(f"{self.name}: more than {LARGEST:,} bytes, the limit for an encoded picture")
        return data


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
