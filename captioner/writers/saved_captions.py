"""Reading captions back from a file: of `captioner caption`, of the review page, or edited by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from captioner.errors import UsageError


class SavedCaption(NamedTuple):
    """A caption that was read from a file."""

    text: str
    confidence: float | None = None  # of the model; None where a person has edited or approved the caption


def read_saved(path: Path) -> dict[str, list[SavedCaption]]:
    """The captions of each image, best first, from JSON lines or CSV.

    A row has `image`, and `sentence` or `caption`; the sentence is preferred. Rows without a text are left out.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"--from {path}: {error.strerror}") from None
    captions: dict[str, list[SavedCaption]] = {}
    try:
        for row in _rows(text):
            line = " ".join(str(row.get("sentence") or row.get("caption") or "").split())
            if line:
                captions.setdefault(str(row["image"]), []).append(SavedCaption(line, _confidence(row)))
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise UsageError(
            f"--from {path}: not a jsonl or csv file of `captioner caption` or of its review page ({error!r})"
        ) from None
    if not captions:
        raise UsageError(f"--from {path}: has no captions")
    return captions


def _confidence(row: Mapping[str, Any]) -> float | None:
    if any(str(row.get(mark)).lower() == "true" for mark in ("edited", "approved")):
        return None
    value = row.get("confidence")
    return None if value in (None, "") else float(value)


def _rows(text: str) -> list[Mapping[str, Any]]:
    if text.lstrip().startswith("{"):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return list(csv.DictReader(io.StringIO(text)))
