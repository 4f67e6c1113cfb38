"""JPEG files of a given size, made of photographs at their own scale: they have real detail at every scale."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

# Name of a size in megapixels: width and height.
SIZES = {
    "0.3": (640, 480),
    "1": (1152, 864),
    "3": (2048, 1536),
    "12": (4000, 3000),
    "50": (8660, 5774),
}


def write_mosaics(folder: Path, photographs: Sequence[str], megapixels: str, count: int) -> list[str]:
    """`count` pictures of this size, in a folder of their own. Pictures that are there from before are used again."""
    width, height = SIZES[megapixels]
    folder = folder / f"{megapixels}mp"
    folder.mkdir(parents=True, exist_ok=True)
    sources = itertools.cycle(photographs)
    paths = []
    for number in range(count):
        path = folder / f"{number}.jpg"
        paths.append(str(path))
        if path.exists():
            continue
        mosaic = Image.new("RGB", (width, height))
        top = 0
        while top < height:
            left, lowest = 0, height
            while left < width:
                with Image.open(next(sources)) as photograph:
                    mosaic.paste(photograph.convert("RGB"), (left, top))
                    left, lowest = left + photograph.width, min(lowest, photograph.height)
            top += lowest
        mosaic.save(path, quality=90)
    return paths
