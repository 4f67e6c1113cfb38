"""Pillow warns about broken EXIF data and the like, which do no harm and are no reason to refuse a picture.

`warnings.catch_warnings` changes the filters of all threads, and a filter by module would also hide what Pillow has to
say to a program that uses it beside captioner. So this filter asks in which thread the warning was raised.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast


class _PillowInThisThread:
    """Stands in a filter for the pattern of the module. `warnings` asks it in the thread that warns."""

    def __init__(self) -> None:
        self.readings = threading.local()

    def match(self, module: str) -> bool:
        return getattr(self.readings, "depth", 0) > 0 and module.split(".")[0] == "PIL"

    def __reduce__(self) -> str:  # some libraries pass the filters on to other processes
        return "_pattern"


_pattern = _PillowInThisThread()
_FILTER = ("ignore", None, Warning, _pattern, 0)


@contextmanager
def without_pillow_warnings() -> Iterator[None]:
    """Hide Pillow's warnings of this thread in the block."""
    filters = cast("list[Any]", warnings.filters)
    if not filters or filters[0] is not _FILTER:  # at the first reading, or where the filters have been changed
        filters.insert(0, _FILTER)
    readings = _pattern.readings
    readings.depth = getattr(readings, "depth", 0) + 1
    try:
        yield
    finally:
        readings.depth -= 1
