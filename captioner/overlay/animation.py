"""An animation that reads the sentence: the picture first, then each word with its map, with smooth transitions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from PIL import Image, ImageDraw

from captioner.caption import Caption, Word
from captioner.errors import unknown
from captioner.overlay import lettering, painting
from captioner.overlay.canvas import Color
from captioner.overlay.painting import Style
from captioner.overlay.sheet import columns

LONG_SIDE = 480
FIRST, WORD, LAST = 1400, 800, 1800  # milliseconds
TRANSITION, BETWEEN = 3, 60  # pictures from one map to the next, and milliseconds per picture
SIZE, LINE, PAD = 20, 30, 14
PAPER: Color = (255, 255, 255)
INK: Color = (22, 24, 29)
FAINT: Color = (110, 114, 124)
GLOW: Color = (255, 221, 120)

AnimationFormat = Literal["gif", "webp"]


def animation(caption: Caption, style: Style | None = None, *, format: AnimationFormat = "gif") -> bytes:
    """The content of a GIF or WebP file that plays the caption in a loop."""
    return animation_of([("", caption)], style, format=format)


def animation_of(
    captions: Sequence[tuple[str, Caption]], style: Style | None = None, *, format: AnimationFormat = "gif"
) -> bytes:
    """As `animation`, with the captions of several models side by side. Shared words are shown together."""
    if format not in ("gif", "webp"):
        raise unknown("format of an animation", str(format), ("gif", "webp"))
    style = style or Style()
    top = painting.top_of_scale(*(caption for _, caption in captions))
    tracks = [_Track(name, caption, top, style) for name, caption in captions]
    frames, times = [_beside([track.frame(-1) for track in tracks])], [FIRST]
    before = [-1] * len(tracks)  # the word that each track shows
    for column in columns([caption for _, caption in captions]):
        after = [position + (word is not None) for position, word in zip(before, column, strict=True)]
        for number in range(TRANSITION):
            share = (number + 1) / (TRANSITION + 1)
            moving = [track.between(a, b, share) for track, a, b in zip(tracks, before, after, strict=True)]
            frames.append(_beside(moving))
            times.append(BETWEEN)
        frames.append(_beside([track.frame(position) for track, position in zip(tracks, after, strict=True)]))
        times.append(WORD)
        before = after
    times[-1] = LAST
    buffer = io.BytesIO()
    if format == "webp":
        frames[0].save(
            buffer, "WEBP", save_all=True, append_images=frames[1:], duration=times, loop=0, quality=80, method=3
        )
    else:
        frames = _quantized(frames)
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


def _quantized(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """The frames in 256 colors, the same for all: with a palette per frame, the photo would flicker."""
    thumbnails = [frame.resize((max(1, frame.width // 3), max(1, frame.height // 3))) for frame in frames]
    strip = Image.new("RGB", (thumbnails[0].width, sum(image.height for image in thumbnails)))
    for number, thumbnail in enumerate(thumbnails):
        strip.paste(thumbnail, (0, number * thumbnail.height))
    palette = strip.quantize(256, Image.Quantize.MEDIANCUT)
    return [frame.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for frame in frames]


class _Track:
    """The frames of one caption: the picture, and the sentence below it."""

    def __init__(self, name: str, caption: Caption, top: float, style: Style) -> None:
        self._caption, self._top, self._style = caption, top, style
        image = painting.upright(caption.picture, min_side=2 * LONG_SIDE)
        scale = LONG_SIDE / max(image.size)
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        self._image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        self._width = max(size[0], 300)
        self._name = lettering.shorten(name, 14, self._width - 2 * PAD) if name else ""
        self._positions, lines = _flow(caption.words, self._width - 2 * PAD)
        self._height = size[1] + PAD + (20 if name else 0) + max(1, lines) * LINE + PAD

    def frame(self, step: int) -> Image.Image:
        """The frame of a word. -1 is the picture without a map."""
        word = self._caption.words[step] if step >= 0 else None
        return self._frame(step, self._painted(word, self._style))

    def between(self, before: int, after: int, share: float) -> Image.Image:
        """A frame on the way from one word to the next. The map fades in after the picture alone."""
        if before == after:
            return self.frame(after)
        new = self._caption.words[after]
        if before < 0:
            return self._frame(after, self._painted(new, replace(self._style, opacity=share * self._style.opacity)))
        alpha = (1 - share) * self._caption.words[before].alpha + share * new.alpha
        return self._frame(after, self._painted(replace(new, alpha=alpha, cell=None), self._style))

    def _painted(self, word: Word | None, style: Style) -> Image.Image:
        return self._image if word is None else painting.paint_word(self._image, word, self._top, style)

    def _frame(self, step: int, picture: Image.Image) -> Image.Image:
        words = self._caption.words
        frame = Image.new("RGB", (self._width, self._height), PAPER)
        frame.paste(picture, ((self._width - picture.width) // 2, 0))
        draw = ImageDraw.Draw(frame)
        y = picture.height + PAD
        if self._name:
            text, font = lettering.fitting(self._name, 14)
            draw.text((PAD, y + 10), text, FAINT, font, anchor="ls")
            y += 20
        for number, (word, (x, line)) in enumerate(zip(words, self._positions, strict=True)):
            text, font = lettering.fitting(word.text, SIZE)
            base = y + line * LINE + 21
            if number == step:
                length = font.getlength(text)
                draw.rounded_rectangle((x - 4, base - 20, x + length + 4, base + 7), 5, fill=GLOW)
            draw.text((x, base), text, INK if step < 0 or number <= step else FAINT, font, anchor="ls")
        return frame


def _flow(words: Sequence[Word], room: float) -> tuple[list[tuple[float, int]], int]:
    """The position of each word, x and line, and the number of lines."""
    positions: list[tuple[float, int]] = []
    x, line = 0.0, 0
    for word in words:
        length = lettering.width(word.text, SIZE)
        if x > 0 and x + length > room:
            x, line = 0.0, line + 1
        positions.append((PAD + x, line))
        x += length + 8
    return positions, line + 1
