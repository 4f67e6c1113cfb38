"""An animation that reads the sentence: the picture first, then each word with its map."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw

from captioner.caption import Caption, Word
from captioner.overlay import heat, lettering
from captioner.overlay.canvas import Color
from captioner.overlay.heat import Style
from captioner.overlay.sheet import columns

LONG_SIDE = 480
FIRST, WORD, LAST = 1400, 800, 1800  # milliseconds
SIZE, LINE, PAD = 20, 30, 14
PAPER: Color = (255, 255, 255)
INK: Color = (22, 24, 29)
FAINT: Color = (110, 114, 124)
GLOW: Color = (255, 221, 120)


def animation(caption: Caption, style: Style | None = None) -> bytes:
    """A GIF file that plays the caption over and over."""
    return animation_of([("", caption)], style)


def animation_of(captions: Sequence[tuple[str, Caption]], style: Style | None = None) -> bytes:
    """As `animation`, with the captions of several models side by side, a column of words at a time."""
    style = style or Style()
    top = heat.top_of_scale(*(caption for _, caption in captions))
    tracks = [_Track(name, caption, top, style) for name, caption in captions]
    colors = _palette(style)
    first = _beside([track.frame(-1) for track in tracks])
    frames = [first.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.FLOYDSTEINBERG)]
    reached = [-1] * len(tracks)
    for column in columns([caption for _, caption in captions]):
        reached = [at + (word is not None) for at, word in zip(reached, column, strict=True)]
        frame = _beside([track.frame(at) for track, at in zip(tracks, reached, strict=True)])
        frames.append(frame.quantize(palette=colors, dither=Image.Dither.FLOYDSTEINBERG))
    buffer = io.BytesIO()
    times = [FIRST] + [WORD] * (len(frames) - 1)
    times[-1] = LAST
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return buffer.getvalue()


def _beside(parts: Sequence[Image.Image]) -> Image.Image:
    width = sum(part.width for part in parts) + 8 * (len(parts) - 1)
    whole = Image.new("RGB", (width, max(part.height for part in parts)), PAPER)
    x = 0
    for part in parts:
        whole.paste(part, (x, 0))
        x += part.width + 8
    return whole


def _palette(style: Style) -> Image.Image:
    """256 colors made for these frames: one chosen by frequency would draw a small bright spot as one blot."""
    text = [
        tuple(round(a + (b - a) * t / 5) for a, b in zip(ink, paper, strict=True))
        for ink, paper in ((INK, PAPER), (FAINT, PAPER), (INK, GLOW))
        for t in range(6)
    ]
    chosen = [*heat.palette(style, levels=26, greys=9), *text, (0, 0, 0)]
    image = Image.new("P", (1, 1))
    image.putpalette([part for color in chosen[:256] for part in color])
    return image


class _Track:
    """One caption's frames: a picture and under it the sentence."""

    def __init__(self, name: str, caption: Caption, top: float, style: Style) -> None:
        self._caption, self._top, self._style = caption, top, style
        image = heat.upright(caption.picture, least=2 * LONG_SIDE)
        shrink = LONG_SIDE / max(image.size)
        size = max(1, round(image.width * shrink)), max(1, round(image.height * shrink))
        self._image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        self._muted = heat.mute(self._image)
        self._width = max(size[0], 300)
        self._name = lettering.shorten(name, 14, self._width - 2 * PAD) if name else ""
        self._places, lines = _flow(caption.words, self._width - 2 * PAD)
        self._height = size[1] + PAD + (20 if name else 0) + max(1, lines) * LINE + PAD

    def frame(self, step: int) -> Image.Image:
        """The frame of a word; -1 is the picture alone."""
        words = self._caption.words
        picture = self._image if step < 0 else heat.paint(self._muted, words[step], self._top, self._style)
        frame = Image.new("RGB", (self._width, self._height), PAPER)
        frame.paste(picture, ((self._width - picture.width) // 2, 0))
        draw = ImageDraw.Draw(frame)
        y = picture.height + PAD
        if self._name:
            text, font = lettering.fitting(self._name, 14)
            draw.text((PAD, y + 10), text, FAINT, font, anchor="ls")
            y += 20
        for number, (word, (x, line)) in enumerate(zip(words, self._places, strict=True)):
            text, font = lettering.fitting(word.text, SIZE)
            base = y + line * LINE + 21
            if number == step:
                length = font.getlength(text)
                draw.rounded_rectangle((x - 4, base - 20, x + length + 4, base + 7), 5, fill=GLOW)
            draw.text((x, base), text, INK if step < 0 or number <= step else FAINT, font, anchor="ls")
        return frame


def _flow(words: Sequence[Word], room: float) -> tuple[list[tuple[float, int]], int]:
    """Where each word of a sentence stands: x and line; and how many lines there are."""
    places: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for word in words:
        length = lettering.width(word.text, SIZE)
        if x > 0 and x + length > room:
            x, line = 0.0, line + 1
        places.append((PAD + x, line))
        x += length + 8
    return places, line + 1
