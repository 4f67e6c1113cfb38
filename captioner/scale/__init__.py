"""Captions at scale: shards of pictures in, shards of captions out, on one machine or on a Ray cluster.

A shard is the unit of work. Its output is written under a temporary name and renamed, so an output that exists is
complete, and a job that was stopped continues with the shards that have none.

`CaptionBatch` is for pipelines of your own with Ray Data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.scale.caption_batch import CaptionBatch

__all__ = ["CaptionBatch"]


def __getattr__(name: str) -> Any:
    if name == "CaptionBatch":
        from captioner.scale.caption_batch import CaptionBatch

        return CaptionBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
