"""Draws an attention map over a picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError, UsageError
from captioner.images.reading import Picture
from captioner.overlay import colors, geometry

MIDDLE_GREY = (140, 140, 140)
LEAST_TOP = 4.0  # the lowest top of a scale: where all maps are flat, they are drawn flat and dark


@dataclass(frozen=True)
class Style:
    """How maps are drawn."""

    blocks: bool = False  # one plain rectangle per cell, without interpolation
    per_word: bool = False  # each map on its own scale: shapes can be compared, strengths cannot
    opacity: float = 0.85  # of the map over the picture

    def __post_init__(self) -> None:
        if not 0 <= self.opacity <= 1:
            raise UsageError(f"opacity {self.opacity} is not between 0 and 1")


def top_of_scale(*captions: Caption) -> float:
    """The density that is drawn in the lightest color: the highest of all words, so they share one scale."""
    return max(LEAST_TOP, geometry.peak([word.alpha for caption in captions for word in caption.words]))


def upright(picture: Picture | None, min_side: int | None = None) -> Image.Image:
    """The picture to draw on. With `min_side`, a large JPEG may be decoded smaller, but not below that many pixels."""
    if picture is None:
        raise CaptionerError("the caption has no picture to draw on; make it with Captioner")
    accepted = picture.frame.width * picture.frame.height  # the picture was within the limit when it was captioned
    return picture.open(min_side=min_side, pixel_limit=accepted)


def mute(image: Image.Image) -> Image.Image:
    """The picture in grey with less contrast, so that color means attention and nothing else."""
    return image.convert("L").point(_MUTED).convert("RGB")


_MUTED = [round(0.85 * grey + 0.15 * MIDDLE_GREY[0]) for grey in range(256)]


def paint(muted: Image.Image, word: Word, top: float, style: Style) -> Image.Image:
    """A muted picture with the map of a word over it, and an outline around the cell of a hard model."""
    width, height = muted.size
    if style.per_word:
        top = max(geometry.peak([word.alpha]), 1e-6)
    heat = Image.new("L", muted.size)
    for first, strip in geometry.strips(word.alpha, width, height, blocks=style.blocks):
        levels = np.clip(strip * np.float32(255 / top) + 0.5, 0, 255).astype(np.uint8)
        heat.paste(Image.fromarray(levels), (0, first))
    painted = _blend(muted, heat, style.opacity)
    if word.cell is not None:
        mark(painted, word.cell, word.alpha.shape[0], word.alpha.shape[1])
    return painted


def legend(width: int, height: int, style: Style) -> Image.Image:
    """The color map from left to right, as it looks over a middle grey."""
    levels = np.linspace(0, 255, width).astype(np.uint8)
    heat = Image.fromarray(np.repeat(levels[None], height, axis=0))
    return _blend(Image.new("RGB", (width, height), MIDDLE_GREY), heat, style.opacity)


def palette(style: Style, levels: int, greys: int) -> list[tuple[int, int, int]]:
    """The colors of painted pictures: this many levels of attention over this many greys."""
    shades = np.linspace(_MUTED[0], _MUTED[255], greys).astype(np.uint8)
    muted = Image.fromarray(np.repeat(shades[:, None], levels, axis=1)).convert("RGB")
    heat = Image.fromarray(np.repeat(np.linspace(0, 255, levels).astype(np.uint8)[None], greys, axis=0))
    painted = np.asarray(_blend(muted, heat, style.opacity)).reshape(-1, 3)
    return [(int(r), int(g), int(b)) for r, g, b in painted]


def _blend(muted: Image.Image, heat: Image.Image, opacity: float) -> Image.Image:
    """Levels of attention (a picture of mode L) in colors over a picture."""
    cover = heat.point(_cover(opacity))
    colored = heat.copy()
    colored.putpalette(colors.COLOR_MAP.tobytes())  # makes it a picture of mode P
    return Image.composite(colored.convert("RGB"), muted, cover)


def _cover(opacity: float) -> list[int]:
    """How much of the picture each level hides, 0 to 255.

    Less attention hides less, but always more than half of the peak: otherwise a bright part of the picture would look
    like attention.
    """
    return [round(255 * opacity * (0.6 + 0.4 * level / 255)) for level in range(256)]


def mark(image: Image.Image, cell: tuple[int, int], rows: int, cols: int) -> None:
    """Outline a cell in black and white, which is visible on every color."""
    width, height = image.size
    thick = max(1, round(min(width, height) / 160))
    left, top, right, bottom = (
        round(cell[1] * width / cols),
        round(cell[0] * height / rows),
        round((cell[1] + 1) * width / cols) - 1,
        round((cell[0] + 1) * height / rows) - 1,
    )
    draw = ImageDraw.Draw(image)
    draw.rectangle((left, top, max(left, right), max(top, bottom)), outline=(255, 255, 255), width=2 * thick)
    inner = (left + thick // 2, top + thick // 2, right - thick // 2, bottom - thick // 2)
    if inner[2] >= inner[0] and inner[3] >= inner[1]:
        draw.rectangle(inner, outline=(0, 0, 0), width=thick)
