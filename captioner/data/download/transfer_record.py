"""The record of an unfinished transfer: which bytes of the file are on disk, and of which version of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path


@dataclass
class TransferRecord:
    """What is on disk of a file, and which version of it. `size` is None where the server does not tell it."""

    url: str
    size: int | None
    validator: str  # for If-Range: an ETag or a date; empty where the server gives none
    ranges: bool  # whether the server sends parts of the file
    step: int  # bytes per range
    done: list[int] = field(default_factory=list)  # bytes on disk of each range

    def bounds(self, index: int) -> tuple[int, int | None]:
        if self.size is None:
            return 0, None
        return index * self.step, min((index + 1) * self.step, self.size)

    @property
    def complete(self) -> bool:
        return self.size is not None and sum(self.done) == self.size

    def continues_as(self, new: TransferRecord, md5: str | None) -> bool:
        """Whether `new` is the same file: the same version, or, elsewhere, a file whose MD5 will be checked."""
        if not (self.ranges and new.ranges) or self.size != new.size:
            return False
        if len(self.done) != -(-(self.size or 0) // self.step):
            return False
        if self.url == new.url and self.validator and new.validator:
            return self.validator == new.validator
        return md5 is not None

    def is_another_version(self, headers: Message, size: int | None) -> bool:
        """Whether an answer with these headers proves that the server's file is not the one that was begun."""
        is_etag = self.validator.startswith('"')
        told = headers.get("ETag", "").removeprefix("W/") if is_etag else headers.get("Last-Modified", "")
        if self.validator and told:
            return told != self.validator
        return size is not None and size != self.size


def part_of(target: Path) -> Path:
    """The file that holds the bytes of an unfinished transfer."""
    return target.with_name(f"{target.name}.part")


def record_of(part: Path) -> Path:
    """The file that holds the record of an unfinished transfer."""
    return part.with_name(f"{part.name}.json")


def fetched_bytes(target: Path) -> int:
    """Bytes of a file that are already on disk."""
    if target.is_file():
        return target.stat().st_size
    record = load_record(part_of(target))
    return sum(record.done) if record is not None else 0


def load_record(part: Path) -> TransferRecord | None:
    """The record of a transfer; None if there is none, or it is damaged, or the bytes are gone."""
    try:
        record = TransferRecord(**json.loads(record_of(part).read_text(encoding="utf-8")))
        ends = [record.bounds(index)[0] + done for index, done in enumerate(record.done) if done]
        return record if part.stat().st_size >= max(ends, default=0) else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def forget(part: Path) -> None:
    """Remove an unfinished transfer."""
    record_of(part).unlink(missing_ok=True)
    part.unlink(missing_ok=True)
