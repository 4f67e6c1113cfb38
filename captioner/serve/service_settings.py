"""Settings of the service, declared once: the command line fills them, and every worker process gets a copy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from captioner.images.limits import MEMORY_LIMIT, PIXEL_LIMIT, SECONDS_PER_PICTURE, Limits
from captioner.options import BATCH, BackendName

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class ServiceSettings:
    """Everything that a worker process needs to know."""

    models: tuple[str, ...] = ("default",)  # the first one answers requests that name none
    backend: BackendName = "quick"  # throughput counts
    device: str | None = None
    threads: int | None = None  # per worker process; all processors by default
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    batch: int = BATCH  # pictures searched together
    max_wait: float = 5.0  # milliseconds to wait for pictures that are being decoded
    queue: int = 256  # pictures accepted and not yet answered, per model and worker process
    max_body: int = 32 * MEGABYTE  # bytes per request
    body_memory: int = 256 * MEGABYTE  # bytes of all bodies in work, per worker process
    max_pictures: int = 16  # per request
    pixel_limit: int = PIXEL_LIMIT
    memory_limit: int = MEMORY_LIMIT  # megabytes, for all pictures that are being decoded
    seconds_per_picture: float = SECONDS_PER_PICTURE
    timeout: float = 30.0  # seconds per request
    token_file: Path | None = None
    cors: tuple[str, ...] = ()
    web: Path | None = None  # a folder of `captioner web`, served at /web/
    log: bool = True  # one JSON line per request on standard error

    @property
    def most_bodies(self) -> int:
        """Bytes that the bodies in work may take together. One body of the largest size always fits."""
        return max(self.body_memory, self.max_body)

    @property
    def limits(self) -> Limits:
        """The limits for decoding pictures."""
        return Limits(self.pixel_limit, self.memory_limit, self.seconds_per_picture)

    def token(self) -> str | None:
        """The bearer token that requests must carry; None if no token is needed."""
        return None if self.token_file is None else self.token_file.read_text(encoding="utf-8").strip()
