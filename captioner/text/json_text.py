"""JSON that every reader can read: UTF-8, one line per value unless indented, and only finite numbers."""

from __future__ import annotations

import json
import math
import re
from typing import Any

# JSON allows these characters in strings, but readers of lines end a line there, or can't encode them.
_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def to_json(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON. Numbers that JSON doesn't have (NaN, Infinity) become null.

    A byte of a file name that is not UTF-8 is written as \\udcXX; Python reads it back as the same name.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value
