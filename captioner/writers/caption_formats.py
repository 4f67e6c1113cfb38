"""The formats of captions. This module is light, so that a command line can name them before it loads anything."""

from __future__ import annotations

from typing import Literal, get_args

Format = Literal["text", "jsonl", "csv", "parquet", "coco", "html"]
FORMATS: tuple[Format, ...] = get_args(Format)
