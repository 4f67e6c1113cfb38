"""The review page: one HTML file with thumbnails and captions, to edit and approve them and to save the result.

The page needs no network and no server. Its data are in the page as JSON, so that a later run can continue it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from captioner.caption import Caption
from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import write_atomically
from captioner.overlay.embedding import asset, data_uri, html_document, script_json
from captioner.writers.lines import record
from captioner.writers.wording import Wording

THUMBNAIL = 280  # pixels of the longer side
QUALITY = 72

_DATA = re.compile(r'<script type="application/json" id="captions">(.*?)</script>', re.DOTALL)


class ReviewPage:
    """Collects captions and writes the page when it is closed, also after Ctrl-C."""

    def __init__(self, path: Path, *, resume: bool = False, wording: Wording | None = None) -> None:
        self._path, self._wording = path, wording or Wording()
        self._entries = _read(path) if resume and path.is_file() and path.stat().st_size else []
        self.finished = {str(entry["image"]) for entry in self._entries}

    def write(self, name: str, caption: Caption) -> None:
        """Add a caption. Its alternatives are offered as choices."""
        values = record(name, caption, wording=self._wording)
        alternatives = [other["sentence"] for other in values.pop("alternatives", [])]
        unsure = self._wording.marks(caption)
        self._entries.append({**values, "alternatives": alternatives, "unsure": unsure, **_thumbnail(caption)})

    def close(self) -> None:
        write_atomically(self._path, page(self._entries))


def page(entries: list[dict[str, Any]]) -> str:
    """The whole document."""
    number = f"{len(entries):,} photo" + ("s" if len(entries) != 1 else "")
    body = asset("captioner.writers/review.html").replace("{{number}}", number)
    return html_document(
        f"Review the captions of {number}",
        f'{body}\n<script type="application/json" id="captions">{script_json(entries)}</script>',
        style_sheet=asset("captioner.writers/review.css"),
        script=asset("captioner.writers/review.js"),
    )


def _thumbnail(caption: Caption) -> dict[str, Any]:
    try:
        assert caption.picture is not None
        image = caption.picture.open(min_side=THUMBNAIL).copy()
    except (CaptionerError, AssertionError):  # the file has changed since it was captioned
        return {"thumbnail": "", "width": THUMBNAIL, "height": THUMBNAIL}
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return {"thumbnail": data_uri(image, QUALITY), "width": image.width, "height": image.height}


def _read(path: Path) -> list[dict[str, Any]]:
    """The entries of a page that an earlier run wrote."""
    match = _DATA.search(path.read_text(encoding="utf-8", errors="surrogateescape"))
    try:
        entries: list[dict[str, Any]] = json.loads(match[1] if match else "")
        if not all("image" in entry and "thumbnail" in entry for entry in entries):
            raise ValueError
    except (ValueError, TypeError):
        raise UsageError(f"{path}: cannot resume, because this is no review page of `captioner caption`") from None
    return entries
