"""Pictures that are not photos, drawn by the program: blanks, noise, text, charts, drawings and screenshots.

A captioner describes them as if they were photos. Its confidence should be low for all of them. Every picture depends
on its kind and a seed only.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Color = tuple[int, int, int]
_COMMON_WORDS = (
    "the of and to in that is was for on are with they be at one have this from by hot word but what some we "
    "can out other were all there when up use your how said an each she which do their time if will way about "
    "many then them write would like so these her long make thing see him two has look more day could go come "
    "did number sound no most people my over know water than call first who may down side been now find "
    "invoice total report budget"
)
WORDS = _COMMON_WORDS.split()
SIZES = ((640, 480), (480, 640), (800, 600), (512, 512), (1024, 768), (1280, 720))


def draw_non_photo(kind: str, seed: int) -> Image.Image:
    """One picture of a kind, at a size that depends on the seed.

    Every second one is a small JPEG, as the photos of many data sets are, so that only its content tells it from them.
    """
    random = np.random.default_rng([sorted(KINDS).index(kind), seed])
    width, height = SIZES[random.integers(len(SIZES))]
    picture = KINDS[kind](random, width, height)
    if random.random() < 0.5:
        return picture
    file = io.BytesIO()
    picture.resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=int(random.integers(70, 96)))
    return Image.open(file).convert("RGB")


def _blank(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """One colour, or a gradient between two."""
    first, second = _color(random), _color(random)
    if random.random() < 0.6:
        grey = int(random.integers(256))
        return Image.new("RGB", (width, height), first if random.random() < 0.5 else (grey, grey, grey))
    across = (
        np.linspace(0, 1, width)[None, :, None] if random.random() < 0.5 else np.linspace(0, 1, height)[:, None, None]
    )
    pixels = np.broadcast_to(np.array(first) * (1 - across) + np.array(second) * across, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def _noise(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """Uniform or normal noise, grey or coloured, in grains of several sizes, sharp or blurred."""
    grain = int(random.choice([1, 2, 4, 8, 16]))
    channels = 1 if random.random() < 0.4 else 3
    shape = (-(-height // grain), -(-width // grain), channels)
    values = (
        random.uniform(0, 255, shape) if random.random() < 0.5 else random.normal(128, random.uniform(20, 80), shape)
    )
    pixels = np.clip(values, 0, 255).astype(np.uint8).repeat(grain, 0).repeat(grain, 1)[:height, :width]
    picture = Image.fromarray(np.broadcast_to(pixels, (height, width, 3)).copy())
    return picture.filter(ImageFilter.GaussianBlur(grain)) if random.random() < 0.3 else picture


def _text(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """A printed page: a heading and paragraphs, or a few large words."""
    paper, ink = _paper_and_ink(random)
    picture = Image.new("RGB", (width, height), paper)
    pen = ImageDraw.Draw(picture)
    if random.random() < 0.3:
        size = int(random.integers(height // 10, height // 4))
        for line in range(int(random.integers(1, 4))):
            pen.text((width // 12, size * (0.5 + 1.2 * line)), _words(random, 2).title(), ink, font=_font(size))
        return picture
    margin, size = width // int(random.integers(8, 20)), int(random.integers(11, 26))
    pen.text((margin, margin // 2), _words(random, 4).title(), ink, font=_font(2 * size))
    _paragraphs(random, pen, (margin, margin + 2 * size, width - margin, height - margin // 2), size, ink)
    return picture


def _chart(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """Bars, lines, points or a pie, with axes and labels."""
    paper, ink = _paper_and_ink(random)
    picture = Image.new("RGB", (width, height), paper)
    pen = ImageDraw.Draw(picture)
    pen.text((width // 4, height // 40), _words(random, 4).title(), ink, font=_font(height // 22))
    left, top, right, bottom = width // 9, height // 8, width - width // 12, height - height // 9
    colors = [_color(random) for _ in range(6)]
    kind = random.integers(4)
    if kind == 3:
        angle, radius = 0.0, min(right - left, bottom - top) // 2
        middle = (left + right) // 2, (top + bottom) // 2
        box = (middle[0] - radius, middle[1] - radius, middle[0] + radius, middle[1] + radius)
        for i, share in enumerate(random.dirichlet(np.full(5, 2.0))):
            pen.pieslice(box, angle, angle + 360 * share, fill=colors[i], outline=paper)
            angle += 360 * share
        for i in range(5):
            pen.rectangle((8, top + 24 * i, 22, top + 14 + 24 * i), fill=colors[i])
            pen.text((28, top + 24 * i), _words(random, 1), ink, font=_font(13))
        return picture
    for i in range(6):
        y = bottom - (bottom - top) * i // 5
        pen.line((left, y, right, y), fill=_mixed(paper, ink, 0.2))
        pen.text((8, y - 7), f"{20 * i}", ink, font=_font(13))
    count = int(random.integers(4, 12))
    step = (right - left) / count
    if kind == 0:
        for i, value in enumerate(random.uniform(0.1, 1, count)):
            x = left + step * (i + 0.15)
            pen.rectangle((x, bottom - (bottom - top) * value, x + 0.7 * step, bottom), fill=colors[i % 2])
    elif kind == 1:
        for color in colors[: int(random.integers(1, 4))]:
            values = np.clip(0.5 + np.cumsum(random.normal(0, 0.12, count + 1)), 0.02, 1)
            pen.line([(left + step * i, bottom - (bottom - top) * v) for i, v in enumerate(values)], color, 3)
    else:
        for color in colors[: int(random.integers(1, 3))]:
            for x, y in random.normal(random.uniform(0.3, 0.7, 2), 0.12, (80, 2)):
                at = left + (right - left) * x, bottom - (bottom - top) * y
                pen.ellipse((at[0] - 4, at[1] - 4, at[0] + 4, at[1] + 4), fill=color)
    pen.line((left, top, left, bottom, right, bottom), fill=ink, width=2)
    for i in range(count):
        pen.text((left + step * i, bottom + 6), _words(random, 1)[:5], ink, font=_font(12))
    return picture


def _drawing(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """Flat shapes, a doodle of curves, a plan of rooms, or a house with a stick figure, as a child draws it."""
    paper, ink = _paper_and_ink(random)
    picture = Image.new("RGB", (width, height), paper)
    pen = ImageDraw.Draw(picture)
    kind = random.integers(4)
    if kind == 0:
        for _ in range(int(random.integers(1, 12))):
            x, y, size = random.uniform(0, width), random.uniform(0, height), random.uniform(0.05, 0.3) * height
            box = (x - size, y - size, x + size, y + size)
            shape = random.integers(3)
            if shape == 0:
                pen.ellipse(box, fill=_color(random))
            elif shape == 1:
                pen.rectangle(box, fill=_color(random))
            else:
                pen.regular_polygon(
                    (x, y, size), int(random.integers(3, 8)), float(random.uniform(0, 90)), _color(random)
                )
    elif kind == 1:
        for _ in range(int(random.integers(1, 5))):
            angles = np.cumsum(random.normal(0, 0.35, 400))
            path = np.cumsum(np.stack([np.cos(angles), np.sin(angles)], 1) * height / 60, axis=0)
            path = (path - path.mean(0)) + (width * random.uniform(0.3, 0.7), height * random.uniform(0.3, 0.7))
            pen.line([tuple(point) for point in path], ink, int(random.integers(2, 6)))
    elif kind == 2:
        for _ in range(int(random.integers(4, 12))):
            x, y = random.uniform(0, 0.7) * width, random.uniform(0, 0.7) * height
            box = (x, y, x + random.uniform(0.1, 0.3) * width, y + random.uniform(0.1, 0.3) * height)
            pen.rectangle(box, outline=ink, width=3)
            pen.text((x + 6, y + 6), _words(random, 1), ink, font=_font(15))
    else:
        _house_and_figure(random, pen, width, height, ink)
    return picture


def _house_and_figure(
    random: np.random.Generator, pen: ImageDraw.ImageDraw, width: int, height: int, ink: Color
) -> None:
    ground, side = 0.8 * height, random.uniform(0.2, 0.35) * height
    pen.rectangle((0, ground, width, height), fill=_color(random))
    x = random.uniform(0.05, 0.4) * width
    pen.rectangle((x, ground - side, x + side, ground), fill=_color(random), outline=ink, width=3)
    pen.polygon(
        [(x, ground - side), (x + side / 2, ground - 1.6 * side), (x + side, ground - side)], _color(random), ink
    )
    pen.ellipse((0.8 * width, 0.06 * height, 0.8 * width + side / 2, 0.06 * height + side / 2), fill=(250, 210, 40))
    x, head = random.uniform(0.6, 0.8) * width, side / 5
    pen.ellipse((x - head, ground - side, x + head, ground - side + 2 * head), outline=ink, width=4)
    hip = ground - 0.3 * side
    for end in ((x, hip), (x - head, ground - 0.45 * side), (x + head, ground - 0.45 * side)):
        pen.line((x, ground - 0.6 * side, *end), ink, 4)
    for end in ((x - head, ground), (x + head, ground)):
        pen.line((x, hip, *end), ink, 4)


def _screenshot(random: np.random.Generator, width: int, height: int) -> Image.Image:
    """A desktop with windows, a terminal, a table of numbers, or a page of a browser."""
    dark = random.random() < 0.4
    back: Color = (30, 32, 38) if dark else (245, 246, 248)
    ink: Color = (225, 226, 228) if dark else (25, 26, 30)
    picture = Image.new("RGB", (width, height), back)
    pen = ImageDraw.Draw(picture)
    kind = random.integers(4)
    bar = max(22, height // 22)
    accent = _color(random)
    pen.rectangle((0, 0, width, bar), fill=accent if random.random() < 0.5 else _mixed(back, ink, 0.15))
    for i in range(3):
        pen.ellipse(
            (8 + 20 * i, bar // 2 - 6, 20 + 20 * i, bar // 2 + 6),
            fill=((237, 95, 86), (245, 190, 80), (90, 190, 90))[i],
        )
    if kind == 0:  # terminal
        pen.rectangle((0, bar, width, height), fill=(12, 14, 18))
        for i in range((height - bar) // 18 - 1):
            color = ((120, 220, 120), (220, 220, 220), (120, 170, 240))[random.integers(3)]
            pen.text((10, bar + 8 + 18 * i), "$ " + _words(random, int(random.integers(1, 9))), color, font=_font(14))
    elif kind == 1:  # table
        columns, row = int(random.integers(4, 10)), 24
        for y in range(bar, height, row):
            pen.line((0, y, width, y), fill=_mixed(back, ink, 0.25))
            for i in range(columns):
                value = f"{random.uniform(0, 1000):.2f}" if y > bar and i else _words(random, 1)
                pen.text((width * i // columns + 6, y + 5), value, ink, font=_font(13))
        for i in range(1, columns):
            pen.line((width * i // columns, bar, width * i // columns, height), fill=_mixed(back, ink, 0.25))
    elif kind == 2:  # page of a browser
        pen.rounded_rectangle((90, bar // 5, width - 60, bar - bar // 5), 8, fill=back)
        side = width // 5
        for i in range(9):
            pen.rounded_rectangle(
                (12, 2 * bar + 34 * i, side - 20, 2 * bar + 20 + 34 * i), 5, fill=_mixed(back, ink, 0.12)
            )
        pen.text((side, 1.6 * bar), _words(random, 3).title(), ink, font=_font(28))
        _paragraphs(random, pen, (side, 3 * bar + 20, width - 40, height - 60), 15, ink)
        pen.rounded_rectangle((side, height - 50, side + 120, height - 16), 6, fill=accent)
        pen.text((side + 22, height - 42), "Continue", (255, 255, 255), font=_font(15))
    else:  # windows on a desktop
        pen.rectangle((0, bar, width, height), fill=accent)
        for _ in range(int(random.integers(1, 4))):
            left, top = random.uniform(0, 0.4) * width, bar + random.uniform(0, 0.4) * height
            right, bottom = left + random.uniform(0.35, 0.6) * width, top + random.uniform(0.3, 0.5) * height
            pen.rounded_rectangle((left, top, right, bottom), 8, fill=back, outline=_mixed(back, ink, 0.3))
            pen.rectangle((left, top + 6, right, top + 28), fill=_mixed(back, ink, 0.15))
            pen.text((left + 10, top + 9), _words(random, 2), ink, font=_font(13))
            _paragraphs(random, pen, (left + 12, top + 40, right - 12, bottom - 12), 13, ink)
    return picture


KINDS: dict[str, Callable[[np.random.Generator, int, int], Image.Image]] = {
    "blank": _blank,
    "chart": _chart,
    "drawing": _drawing,
    "noise": _noise,
    "screenshot": _screenshot,
    "text": _text,
}


def _paragraphs(
    random: np.random.Generator, pen: ImageDraw.ImageDraw, box: tuple[float, float, float, float], size: int, ink: Color
) -> None:
    """Lines of words that fill a box; some are left out between paragraphs."""
    left, top, right, bottom = box
    font = _font(size)
    for line in range(int((bottom - top) / (1.4 * size))):
        if random.random() < 0.1:
            continue
        text = _words(random, max(1, int((right - left) / (3.2 * size))))
        while text and pen.textlength(text, font=font) > right - left:
            text = text.rpartition(" ")[0]
        pen.text((left, top + 1.4 * size * line), text, ink, font=font)


def _paper_and_ink(random: np.random.Generator) -> tuple[Color, Color]:
    paper: Color = ((255, 255, 255), (250, 247, 238), (238, 240, 244), (24, 26, 30))[random.integers(4)]
    return paper, (20, 20, 24) if paper[0] > 128 else (230, 230, 230)


def _color(random: np.random.Generator) -> Color:
    """A colour of any hue."""
    hue, saturation, value = random.uniform(0, 2 * math.pi), random.uniform(0.2, 0.9), random.uniform(90, 245)
    red, green, blue = (
        int(value * (1 - saturation * (0.5 + 0.5 * math.cos(hue + turn))))
        for turn in (0, 2 * math.pi / 3, 4 * math.pi / 3)
    )
    return red, green, blue


def _mixed(first: Color, second: Color, share: float) -> Color:
    red, green, blue = (int(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def _words(random: np.random.Generator, count: int) -> str:
    return " ".join(WORDS[i] for i in random.integers(len(WORDS), size=count))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
