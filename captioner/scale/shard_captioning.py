"""Captioning one shard: the same code for `captioner caption`, for a Ray cluster, and for any other scheduler."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from typing import IO, Any

from captioner import __version__
from captioner.bundle.loading import read_manifest
from captioner.bundle.model_folders import find_model
from captioner.captioning import Captioner
from captioner.errors import CaptionerError, UsageError
from captioner.images.limits import LIMITS, Limits
from captioner.images.reading import ImageSource
from captioner.inference.streaming import CaptionStream
from captioner.options import BATCH, BackendName
from captioner.scale.damage_notes import write_note
from captioner.scale.locations import folder_of, is_address, open_input, open_output
from captioner.scale.picture_tables import Columns, has_paths, read_list, read_metadata, read_parquet
from captioner.scale.rows import error_group, row_of
from captioner.scale.samples import DamagedShard, Sample, StoredPicture, batches
from captioner.scale.shard_writers import ParquetShard, ShardWriter, WebdatasetShard
from captioner.scale.shards import CaptionMember, Shard, ShardFormat
from captioner.scale.tar_shards import read_tar
from captioner.text.json_text import to_json

REPORT_EVERY = 1.0  # seconds between two calls of `progress`


@dataclass(frozen=True)
class ShardSettings:
    """How the captions of a job are made and written. The same settings and shard give the same output anywhere."""

    model: str = "default"
    backend: BackendName = "auto"
    device: str | None = None
    threads: int | None = None
    batch: int = BATCH
    limits: Limits = LIMITS
    options: Mapping[str, Any] = field(default_factory=dict)  # of the search
    format: ShardFormat = "parquet"
    captions_in: CaptionMember = "txt"
    columns: Columns = field(default_factory=Columns)
    root: str = ""  # folder that the paths in lists are relative to; the current one if empty


@dataclass(frozen=True)
class ShardReport:
    """What came of a shard. Without `is_finished`, it has no output and `problem` says why."""

    name: str
    pictures: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)  # pictures without a caption, by reason
    seconds: float = 0.0
    problem: str = ""
    is_finished: bool = True


class ShardCaptioner:
    """A loaded model that captions shards."""

    def __init__(self, settings: ShardSettings) -> None:
        options: dict[str, Any] = dict(settings.options)
        captioner = Captioner.load(
            settings.model, backend=settings.backend, device=settings.device, threads=settings.threads
        )
        search = captioner.options(**options)
        if search.n_best > 1:
            raise UsageError("--n-best: shards have one row per picture, and so one caption")
        assert captioner.manifest is not None  # it was loaded from a bundle
        self.settings, self.captioner = settings, captioner
        self.model = captioner.manifest.name
        self.stream = CaptionStream(
            captioner.backend,
            search,
            captioner.threads,
            settings.batch,
            settings.limits,
            confidence=captioner.confidence,
            thumbnail=0,
        )
        self.origin = {
            "captioner.version": __version__,
            "captioner.model": self.model,
            "captioner.weights": fingerprint(settings.model),
            "captioner.backend": captioner.backend.name,
            "captioner.search": to_json(asdict(search)),
        }
        if settings.format == "webdataset":
            self.origin["captioner.captions_in"] = settings.captions_in

    def caption(self, shard: Shard, folder: str, progress: Callable[[int], None] = lambda more: None) -> ShardReport:
        """Caption a shard and write its output. What is wrong with the shard is in the report, not raised.

        `progress` is called now and then with the number of pictures that were finished since the last call.
        """
        started = time.monotonic()
        errors: Counter[str] = Counter()
        pictures = reported = 0
        reported_at = started
        damage: list[str] = []
        try:
            with ExitStack() as stack:
                web_servers = _web_servers(shard, self.settings)
                source = stack.enter_context(_open_shard(shard))
                samples = self._undamaged(shard, source, damage, web_servers)
                output = stack.enter_context(open_output(shard.output(folder, self.settings.format)))
                writer = stack.enter_context(self._writer(output))
                for sample, row in stack.enter_context(closing(self.rows(samples))):
                    _check_store(sample, web_servers, shard)
                    writer.write(sample, row)
                    if row is None:
                        continue
                    pictures += 1
                    if row["error"] is not None:
                        errors[error_group(row["error"])] += 1
                    if time.monotonic() - reported_at > REPORT_EVERY:
                        progress(pictures - reported)
                        reported, reported_at = pictures, time.monotonic()
                if damage:  # before the output has its name: no later run may see it without the note
                    write_note(shard, folder, damage[0])
        except Exception as error:
            return ShardReport(shard.name, problem=_problem(error, shard, folder), is_finished=False)
        finally:
            progress(pictures - reported)
        return ShardReport(shard.name, pictures, errors, time.monotonic() - started, "".join(damage))

    def _undamaged(self, shard: Shard, source: IO[bytes], damage: list[str], web_servers: set[str]) -> Iterator[Sample]:
        """The samples of a shard up to its damage, which is noted, as are the web servers of its pictures."""
        try:
            for sample in _samples(shard, source, self.settings):
                if isinstance(sample.picture, StoredPicture) and sample.picture.web_server:
                    web_servers.add(sample.picture.web_server)
                yield sample
        except DamagedShard as error:
            damage.append(str(error))

    def rows(self, samples: Iterator[Sample]) -> Generator[tuple[Sample, dict[str, Any] | None]]:
        """Each sample with its row, in order."""
        waiting: deque[Sample] = deque()

        def rounds() -> Iterator[Sequence[Sequence[ImageSource]]]:
            for batch in batches(samples, self.settings.batch):
                waiting.extend(batch)
                pictures = [sample.picture for sample in batch if sample.picture is not None]
                yield [pictures] if pictures else []  # type: ignore[list-item]  # what can be read is a source

        for result in self.stream.run_rounds(rounds()):
            while (sample := waiting.popleft()).picture is None:
                yield sample, None
            yield sample, row_of(sample.key, result, self.model, self.captioner.backend.name)
        yield from ((sample, None) for sample in waiting)

    def _writer(self, file: IO[bytes]) -> ShardWriter:
        if self.settings.format == "parquet":
            return ParquetShard(file, self.origin)
        return WebdatasetShard(file, self.settings.captions_in)


def fingerprint(model: str) -> str:
    """A checksum of all files of a model that decide about captions. Only its manifest is read."""
    files = read_manifest(find_model(model)).files
    checksums = sorted(f"{name} {record.sha256}" for name, record in files.items())
    return hashlib.sha256("\n".join(checksums).encode()).hexdigest()[:16]


def _check_store(sample: Sample, web_servers: set[str], shard: Shard) -> None:
    """Give up a shard whose store has failed, so that the next run tries it again.

    A list of pictures from many web servers will always have some that are gone. They cost their pictures only.
    `web_servers` has at least two of those of the whole shard, if there are so many. It is the same in every run.
    """
    picture = sample.picture
    if isinstance(picture, StoredPicture) and picture.outage and (not picture.web_server or len(web_servers) == 1):
        raise CaptionerError(f"{shard.location}: {picture.outage}")


def _web_servers(shard: Shard, settings: ShardSettings) -> set[str]:
    """The web servers of a table of addresses, up to the second one, before any picture is fetched.

    Pictures that are in the table itself would have to be read for that. There, servers are known as they come.
    """
    servers: set[str] = set()
    if shard.kind not in ("list", "parquet"):
        return servers
    with _open_shard(shard) as file, suppress(DamagedShard):
        if shard.kind == "parquet" and not has_paths(file, shard.location, settings.columns):
            return servers
        for sample in _samples(shard, file, settings):
            if isinstance(sample.picture, StoredPicture) and sample.picture.web_server:
                servers.add(sample.picture.web_server)
            if len(servers) > 1:
                break
    return servers


def _problem(error: Exception, shard: Shard, folder: str) -> str:
    """A sentence about a shard that could not be captioned. A defect of captioner itself is raised."""
    if isinstance(error, CaptionerError):
        return str(error) if str(error).startswith(shard.location) else f"{shard.location}: {error}"
    if isinstance(error, OSError):
        return f"{error.filename or shard.location}: {error.strerror or error}"
    if is_address(shard.location) or is_address(folder):  # libraries of stores raise nearly anything
        return f"{shard.location}: {type(error).__name__}: {error}"
    raise error


def _open_shard(shard: Shard) -> IO[bytes]:
    try:
        return open_input(shard.location)
    except FileNotFoundError:
        raise CaptionerError(f"{shard.location}: no such file") from None


def _samples(shard: Shard, file: IO[bytes], settings: ShardSettings) -> Iterator[Sample]:
    folder = folder_of(shard.location)
    if shard.kind == "tar":
        yield from read_tar(file, shard.location, with_members=settings.format == "webdataset")
    elif shard.kind == "parquet":
        yield from read_parquet(file, shard.location, folder, settings.columns)
    else:
        file.seek(shard.offset)
        if shard.kind == "list":
            yield from read_list(file, settings.root, shard.lines)
        else:
            yield from read_metadata(file, folder, shard.before, shard.lines)
