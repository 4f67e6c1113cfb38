"""Rows: the columns of an output shard, the same in Parquet files and in the JSON of webdataset shards."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from captioner import __version__
from captioner.caption import Caption, Failure
from captioner.writers.lines import record

if TYPE_CHECKING:
    import pyarrow

COLUMNS = ("key", "caption", "sentence", "score", "confidence", "words", "error", "model", "backend", "version")

_VARIABLE = re.compile(r"\b\d[\d,.]*(?:x\d+)?|\(.*")


def row_of(key: str, result: Caption | Failure, model: str, backend: str) -> dict[str, Any]:
    """The row of a picture: its caption, or the reason why it has none."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"key": key, "model": model, "backend": backend, "version": __version__}
    if isinstance(result, Failure):
        return row | {"error": result.reason.removeprefix(f"{result.name}: ")}
    values = record(key, result)
    values |= {"words": [word.text for word in result.words]}
    return row | {column: values[column] for column in ("caption", "sentence", "score", "confidence", "words")}


def error_group(error: str) -> str:
    """The kind of an error, for counting: without numbers and without what stands in parentheses."""
    return _VARIABLE.sub("N", error.partition(";")[0]).removesuffix(" N").strip()[:200]


def schema() -> pyarrow.Schema:
    """The columns of a Parquet shard."""
    import pyarrow

    numbers = dict.fromkeys(("score", "confidence"), pyarrow.float64())
    types = {"words": pyarrow.list_(pyarrow.string())} | numbers
    return pyarrow.schema([(column, types.get(column, pyarrow.string())) for column in COLUMNS])
