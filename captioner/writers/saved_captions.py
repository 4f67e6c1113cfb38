"""Reading captions back from a file: of `captioner caption`, of the review page, or edited by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioner.errors import UsageError


def read_saved(path: Path) -> dict[str, list[str]]:
    """The captions of each image, best first, from JSON lines or CSV.

    A row has `image`, and `sentence` or `caption`; the sentence is preferred. Rows without a text are left out.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"--from {path}: {error.strerror}") from None
    captions: dict[str, list[str]] = {}
    try:
        for row in _rows(text):
            line = " ".join(str(row.get("sentence") or row.get("caption") or "").split())
            if line:
                captions.setdefault(str(row["image"]), []).append(line)
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise UsageError(
            f"--from {path}: not a jsonl or csv file of `captioner caption` or of its review page ({error!r})"
        ) from None
    if not captions:
        raise UsageError(f"--from {path}: has no captions")
    return captions


def _rows(text: str) -> list[Mapping[str, Any]]:
    if text.lstrip().startswith("{"):
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    return list(csv.DictReader(io.StringIO(text)))
