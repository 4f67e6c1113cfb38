"""Writing an output shard: a Parquet file of rows, or a copy of a webdataset shard with captions in it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any, Protocol

from captioner.errors import CaptionerError
from captioner.scale.rows import schema
from captioner.scale.samples import Member, Sample
from captioner.scale.shards import CaptionMember
from captioner.text.json_text import to_json
from captioner.writers.parquet_writer import ROWS, escape_name, pyarrow_library


class ShardWriter(Protocol):
    """Writes the samples of a shard with their rows. The shard is complete at the end of a `with` statement."""

    def write(self, sample: Sample, row: dict[str, Any] | None) -> None:
        """Write a sample. One without a picture has no row."""

    def __enter__(self) -> ShardWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ParquetShard:
    """One row per picture."""

    def __init__(self, file: IO[bytes], metadata: dict[str, str]) -> None:
        """`metadata` says how the captions were made. It is stored in the file's footer."""
        self._schema = schema().with_metadata(metadata)
        self._writer = pyarrow_library().ParquetWriter(file, self._schema)
        self._rows: list[dict[str, Any]] = []

    def write(self, sample: Sample, row: dict[str, Any] | None) -> None:
        if row is not None:
            self._rows.append(
                row | {"key": escape_name(row["key"]), "error": row["error"] and escape_name(row["error"])}
            )
        if len(self._rows) >= ROWS:
            self._flush()

    def __enter__(self) -> ParquetShard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
            self._writer.close()
        self._writer.is_open = False  # else pyarrow closes it later, and writes to a closed file

    def _flush(self) -> None:
        import pyarrow

        self._writer.write_table(pyarrow.Table.from_pylist(self._rows, self._schema))
        self._rows = []


class WebdatasetShard:
    """A copy of the input shard. Each picture gets key.caption.txt, or an object "captioner" in key.json.

    With `txt`, a picture without a caption gets key.error.txt.
    """

    def __init__(self, file: IO[bytes], captions_in: CaptionMember) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115 (closed in __exit__)
        self._captions_in = captions_in
        # A file can be far from its picture, in another part of a long sample. So the names of all are remembered.
        self._endings = (".json",) if captions_in == "json" else (".caption.txt", ".error.txt")
        self._copied: set[str] = set()  # of those that end like an added one
        self._added: set[str] = set()

    def write(self, sample: Sample, row: dict[str, Any] | None) -> None:
        members: Sequence[Member] = sample.members
        if row is not None and self._captions_in == "txt":
            kind, text = ("error", row["error"]) if row["caption"] is None else ("caption", row["sentence"])
            members = [*members, Member(f"{sample.key}.{kind}.txt", text.encode(errors="backslashreplace"))]
        elif row is not None:
            members = _with_json(members, f"{sample.key}.json", row)
        self._check_names(sample.members, members[len(sample.members) :])
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.size, info.mtime = len(member.data), int(member.modified)
            self._tar.addfile(info, io.BytesIO(member.data))

    def _check_names(self, copied: Sequence[Member], added: Sequence[Member]) -> None:
        """Refuse to add a file of a name that the shard has."""
        self._copied.update(member.name for member in copied if member.name.endswith(self._endings))
        self._added.update(member.name for member in added)
        for member in (*copied, *added):
            if member.name in self._copied and member.name in self._added:
                raise CaptionerError(
                    f"{member.name}: the shard has this file already; use --captions-in json"
                    if self._captions_in == "txt"
                    else f"{member.name}: this file of the shard is not beside its picture, so the caption cannot be "
                    "added to it; write the files of each picture one after the other, or use --captions-in txt"
                )

    def __enter__(self) -> WebdatasetShard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._tar.close()


def _with_json(members: Sequence[Member], name: str, row: dict[str, Any]) -> list[Member]:
    """The members with the row in the JSON file of this name. What the file has already stays."""
    present = next((member for member in members if member.name == name), None)
    own = {column: value for column, value in row.items() if column != "key"}
    try:
        values = json.loads(present.data) if present is not None else {}
        if not isinstance(values, dict) or "captioner" in values:
            raise ValueError
    except (ValueError, RecursionError):
        raise CaptionerError(
            f"{name}: captions cannot be added to it: it is not a JSON object, or has captions already; "
            "use --captions-in txt"
        ) from None
    changed = Member(name, to_json({**values, "captioner": own}).encode(), present.modified if present else 0.0)
    if present is None:
        return [*members, changed]
    return [changed if member is present else member for member in members]
