"""What the benchmark trains, in full size and in a small size for tests."""

from __future__ import annotations

from dataclasses import dataclass

ENCODER = "efficientnet_lite2"  # of the shipped models


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class Sizes:
    pictures: int
    picture_size: int  # pixels
    images_per_step: int
    captions_per_image: int
    width: int  # of the decoder's layers
    attention: int
    vocabulary: int
    stages: tuple[str, ...]  # of the encoder, whose outputs are the annotations
    plain_steps: int  # steps of the plain loop per round
    few: int  # images of the smaller data set in the memory comparison
    many: int  # images of the larger one
    scale_steps: int
    epochs: int


# About the sizes of the shipped models, with COCO's number of words.
FULL = Sizes(480, 256, 32, 5, 512, 256, 6900, ("stage6", "head"), 2, 10_000, 118_000, 60, 12)
# Small enough for a test. The figures mean nothing.
QUICK = Sizes(12, 64, 4, 4, 16, 8, 80, ("stage3",), 1, 300, 900, 12, 6)
