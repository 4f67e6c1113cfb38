"""Paints maps on pictures. The formulas are those of painting.js; a test compares the two.

A map is a grid of values with a top of the scale: attention as a multiple of an even spread, or how much a word
relied on each part of the picture. Smoothing between the centres of cells never exceeds the cells' own values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError, UsageError, unknown
from captioner.images.reading import Picture
from captioner.overlay import colors, geometry

StyleName = Literal["spotlight", "heat", "contour", "blocks"]

LEAST_TOP = 4.0  # the lowest top of a scale of attention: where all maps are flat, they are drawn flat
GREY = (140, 140, 140)
DIM = 0.27  # brightness of a part without attention
FULL_LIGHT = 0.65  # spotlight: the part of the scale from which on the photo has its full light
LIGHT_POWER = 0.75
LINE = 1 / 300  # width of a line, relative to the shorter side
DARK_LINE = 0.65  # opacity of the dark side of a line
MUTED, MUTED_GREY = 0.85, 21  # heat: the grey photo has less contrast
LEAST_COVER = 0.6  # heat: opacity of the lowest color, relative to that of the highest


@dataclass(frozen=True)
class Style:
    """How maps are drawn.

    Attributes:
        name: `spotlight` dims the photo and takes its color away where the model did not look; `heat` colors a grey
            photo; `contour` draws lines on the photo; `blocks` is a spotlight on the true cells of the grid.
        grid: Draw the true cells of the grid in any style, without interpolation.
        per_word: Draw each map on its own scale: shapes can be compared, strengths cannot.
        opacity: Opacity of the map over the picture, 0 to 1.
    """

    name: StyleName = "spotlight"
    grid: bool = False
    per_word: bool = False
    opacity: float = 0.85

    def __post_init__(self) -> None:
        if self.name not in get_args(StyleName):
            raise unknown("style", str(self.name), get_args(StyleName))
        if not 0 <= self.opacity <= 1:
            raise UsageError(f"opacity {self.opacity} is not between 0 and 1")

    @property
    def shows_cells(self) -> bool:
        return self.grid or self.name == "blocks"


def top_of_scale(*captions: Caption) -> float:
    """The density that is drawn brightest: the highest of all words, so they share one scale."""
    return max(LEAST_TOP, geometry.peak([word.alpha for caption in captions for word in caption.words]))


def upright(picture: Picture | None, min_side: int | None = None) -> Image.Image:
    """The picture to draw on. With `min_side`, a large JPEG may be decoded smaller, but not below that many pixels."""
    if picture is None:
        raise CaptionerError("the caption has no picture to draw on; make it with Captioner")
    return picture.open(min_side=min_side)


def fit(image: Image.Image, side: int) -> Image.Image:
    """The picture, made smaller where its longer side has more than `side` pixels."""
    scale = min(1.0, side / max(image.size))
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0) if scale < 1 else image


def paint_word(image: Image.Image, word: Word, top: float, style: Style) -> Image.Image:
    """A picture with the attention map of a word on it, and an outline around the cell of a hard model."""
    values = geometry.density(word.alpha)
    if style.per_word:
        top = max(float(values.max()), 1e-6)
    painted = paint(image, values, top, style)
    if word.cell is not None:
        mark(painted, word.cell, *word.alpha.shape)
    return painted


def paint(image: Image.Image, values: geometry.Map, top: float, style: Style) -> Image.Image:
    """A picture with a map (rows, cols) on it. `top` is the value that is drawn brightest."""
    painted = Image.new("RGB", image.size)
    thresholds = [share_threshold(values, share) for share in (0.25, 0.75, 0.5)]
    masks = [Image.new("L", image.size) for _ in thresholds]
    for first, field in geometry.strips(values, *image.size, grid=style.shows_cells):
        box = (0, first, image.width, first + len(field))
        pixels = np.asarray(image.crop(box), np.float32)
        if style.name == "heat":
            pixels = _heat(pixels, field, top, style.opacity)
        elif style.name != "contour":
            pixels = _spotlight(pixels, field, top, style.opacity)
        painted.paste(Image.fromarray((pixels + np.float32(0.5)).astype(np.uint8)), (0, first))
        for threshold, mask in zip(thresholds, masks, strict=True):
            inside = field >= threshold * (1 - 1e-5)
            mask.paste(Image.fromarray(np.where(inside, np.uint8(255), np.uint8(0))), (0, first))
    if style.name == "heat" or not (values > 0).any():
        return painted
    line = max(1, round(min(image.size) * LINE))
    if style.name != "contour":
        return _outlined(painted, masks[2], line)
    for mask, width in zip(masks, (line, line, 2 * line), strict=True):
        painted = _outlined(painted, mask, width)
    return painted


def share_threshold(values: geometry.Map, share: float) -> float:
    """The value from which on cells belong to the smallest set with this share of the total.

    Equal cells are all in the set, so the line around half of an even map is the border of the picture.
    """
    ordered = np.sort(np.maximum(values, 0).astype(np.float64), axis=None)[::-1]
    reached = np.nonzero(np.cumsum(ordered) >= share * ordered.sum() * (1 - 1e-6))[0]
    return float(ordered[reached[0]])


def half_area(values: geometry.Map) -> float:
    """The share of the cells that hold half of the total: 0.5 for an even map, 1 / cells for a single cell."""
    positive = values[values > 0].astype(np.float64)
    if not len(positive):
        return 1.0
    above = positive[positive >= share_threshold(values, 0.5) * (1 - 1e-6)]
    return len(above) * min(1.0, 0.5 * float(positive.sum() / above.sum())) / values.size


def focus(values: geometry.Map) -> float:
    """How concentrated a map is, from 0 (even) to 1 (one cell), on a scale of ratios."""
    if values.size < 3:
        return 1.0
    return float(np.clip(np.log(0.5 / half_area(values)) / np.log(0.5 * values.size), 0, 1))


def _luma(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    return np.asarray((pixels @ weights)[..., None])


def _spotlight(pixels: NDArray[np.float32], field: geometry.Map, top: float, opacity: float) -> NDArray[np.float32]:
    light = (
        1
        - opacity
        + opacity * (np.clip(field / np.float32(FULL_LIGHT * top), 0, 1) ** np.float32(LIGHT_POWER))[..., None]
    )
    dark = np.float32(DIM) * _luma(pixels)
    return np.asarray(dark + light * (pixels - dark), np.float32)


def _heat(pixels: NDArray[np.float32], field: geometry.Map, top: float, opacity: float) -> NDArray[np.float32]:
    """Colors over a grey photo.

    Less attention hides less, but always more than half of the peak: otherwise a bright part of the photo would look
    like attention.
    """
    level = np.clip(np.floor(field / np.float32(top) * 255 + 0.5), 0, 255).astype(np.uint8)
    cover = opacity * (LEAST_COVER + (1 - LEAST_COVER) * level.astype(np.float32) / 255)[..., None]
    muted = MUTED * _luma(pixels) + MUTED_GREY
    return np.asarray(cover * colors.COLOR_MAP[level] + (1 - cover) * muted, np.float32)


def _outlined(image: Image.Image, inside: Image.Image, line: int) -> Image.Image:
    """The picture with a line around the pixels of a mask: white inside, dark outside, visible everywhere."""
    size = 2 * line + 1
    inner = ImageChops.subtract(inside, inside.filter(ImageFilter.MinFilter(size)))
    outer = ImageChops.subtract(inside.filter(ImageFilter.MaxFilter(size)), inside)
    darker = image.point([round(value * (1 - DARK_LINE)) for value in range(256)] * 3)
    image = Image.composite(darker, image, outer)
    image.paste((255, 255, 255), mask=inner)
    return image


def legend(width: int, height: int, style: Style) -> Image.Image:
    """The scale from left to right, as it looks over a middle grey (heat) or a light color."""
    field = np.repeat(np.linspace(0, 1, width, dtype=np.float32)[None], height, axis=0)
    if style.name == "heat":
        pixels = _heat(np.full((height, width, 3), GREY, np.float32), field, 1.0, style.opacity)
    else:
        pixels = _spotlight(np.full((height, width, 3), SAMPLE, np.float32), field, 1.0, style.opacity)
    return Image.fromarray((pixels + np.float32(0.5)).astype(np.uint8))


SAMPLE = (120, 190, 235)  # the color of the legend of a spotlight: a bright sky


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
