"""The sheet: the picture, then one panel per word with its map, probability and gate, and a legend.

Words that carry content are large, function words small. Several captions, one per model, make a comparison, in which
shared words are in one column. One layout serves pixels, SVG and PDF.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeVar

from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import UsageError
from captioner.overlay import lettering, painting
from captioner.overlay.canvas import Canvas, Color, Raster
from captioner.overlay.painting import Style
from captioner.overlay.pdf import Pdf
from captioner.overlay.sheet_layout import GAP, Layout, SheetOptions, Spot
from captioner.overlay.svg import Svg
from captioner.text.nouns import is_content_word

INK: Color = (22, 24, 29)
FAINT: Color = (88, 92, 102)
TRACK: Color = (226, 228, 233)
PROBABILITY: Color = (0, 90, 156)
GATE: Color = (176, 84, 0)
BAR = 220  # length of the scale in the legend
PRINT = 300 / 72  # pixels per point of a PNG whose width is given for print
C = TypeVar("C", bound=Canvas)

Named = Sequence[tuple[str, Caption]]  # name of a model and its caption; the name is empty where there is only one


def sheet(
    caption: Caption, style: Style | None = None, options: SheetOptions | None = None, *, density: float = 1.0
) -> Image.Image:
    """One picture of the whole sentence, with `density` pixels per point; 300 per inch where a width is given."""
    return comparison([("", caption)], style, options, density=density)


def sheet_svg(caption: Caption, style: Style | None = None, options: SheetOptions | None = None) -> str:
    """The sheet as an SVG document."""
    return comparison_svg([("", caption)], style, options)


def sheet_pdf(caption: Caption, style: Style | None = None, options: SheetOptions | None = None) -> bytes:
    """The sheet as a PDF document of one page."""
    return comparison_pdf([("", caption)], style, options)


def comparison(
    captions: Named, style: Style | None = None, options: SheetOptions | None = None, *, density: float = 1.0
) -> Image.Image:
    """A sheet with one row per model and one column per word."""
    if options is not None and options.width is not None:
        density *= PRINT
    return _draw(captions, style, options, lambda w, h, scale, _: Raster(w, h, density * scale)).image


def comparison_svg(captions: Named, style: Style | None = None, options: SheetOptions | None = None) -> str:
    """The comparison as an SVG document."""
    return _draw(captions, style, options, Svg).finish()


def comparison_pdf(captions: Named, style: Style | None = None, options: SheetOptions | None = None) -> bytes:
    """The comparison as a PDF document of one page."""
    return _draw(captions, style, options, Pdf).finish()


def columns(captions: Sequence[Caption]) -> list[list[Word | None]]:
    """The words of several captions in common columns: equal words together, each caption in its own order."""
    column_texts: list[str] = []  # one word per column, to align the next caption with
    table: list[list[Word | None]] = []
    for done, caption in enumerate(captions):
        new_texts: list[str] = []
        new_table: list[list[Word | None]] = []
        texts = [word.text for word in caption.words]
        for _, a, b, c, d in SequenceMatcher(None, column_texts, texts, autojunk=False).get_opcodes():
            for i in range(max(b - a, d - c)):
                old, new = a + i < b, c + i < d
                column: list[Word | None] = [*table[a + i]] if old else [None] * done
                new_table.append([*column, caption.words[c + i] if new else None])
                new_texts.append(column_texts[a + i] if old else texts[c + i])
        column_texts, table = new_texts, new_table
    return table


@dataclass(frozen=True)
class _Line:
    text: str
    size: int
    color: Color
    height: int  # distance from the line before


def _draw(
    captions: Named,
    style: Style | None,
    options: SheetOptions | None,
    canvas: Callable[[float, float, float, str], C],
) -> C:
    """Draw on a canvas, which is made from width, height, scale and title."""
    style, options = style or Style(), options or SheetOptions()
    if not captions:
        raise UsageError("there is no caption to draw; give one or more")
    first = captions[0][1]
    original = painting.upright(first.picture, min_side=1200)
    comparing, margin = len(captions) > 1, options.margin
    shown = [
        column
        for column in columns([caption for _, caption in captions])
        if any(word is not None and options.shows(word) for word in column)
    ]
    # A sheet of one caption begins with the picture, and function words are small. A comparison has a regular grid.
    panels: list[list[Word | None] | None] = [*shown] if comparing else [None, *shown]
    small = [not comparing and panel is not None and not _has_content(panel) for panel in panels]
    layout = Layout.of(original.size, sum(0.5 if is_small else 1 for is_small in small), len(captions), options)
    top = painting.top_of_scale(*(caption for _, caption in captions))

    # The texts are laid out before the canvas is created, because they determine its height.
    if comparing:
        spots: list[Spot] = []
        row_height = layout.panel[1] + options.label + GAP + 20
        body = math.ceil(len(panels) / layout.across) * (len(captions) * row_height + GAP) - GAP
    else:
        spots, body = layout.spots(small, options.label)
        layout = layout.shrunk_to(spots, margin) if options.width is None else layout
    indent = layout.panel[0] + GAP if comparing else 0
    header = _header(captions, 0.9 * (layout.width - 2 * margin - indent), options)
    head: float = sum(line.height for line in header)
    if comparing:
        head = max(head, layout.panel[1])
    head += GAP if head else 0
    beside = layout.width - 2 * margin - BAR - GAP
    notes = _notes(captions, style, options, 0.95 * (beside if beside > 200 else layout.width - 2 * margin))
    foot = max(32, 16 * len(notes)) if beside > 200 else 40 + 16 * len(notes)
    page = canvas(layout.width, margin + head + body + foot + margin, options.scale, first.text)

    y: float = margin
    if comparing:
        page.picture(margin, y, *layout.panel, _fit(original, layout.panel, page.density))
    for line in header:
        y += line.height
        page.text(margin + indent, y - 8, line.text, line.size, line.color)
    y = margin + head
    if comparing:
        _comparison_rows(page, y, captions, panels, original, layout, style, options, top)
    for spot, panel in zip(spots, panels, strict=False):
        place = Spot(spot.x + margin, spot.y + y, spot.panel, spot.small)
        _panel(page, place, panel[0] if panel else None, original, layout, style, options, top)
    _legend(page, margin, y + body, top, style, notes, below=beside <= 200)
    return page


def _has_content(column: Sequence[Word | None]) -> bool:
    return any(word is not None and is_content_word(word.text) for word in column)


def _comparison_rows(
    page: Canvas,
    y: float,
    captions: Named,
    panels: Sequence[Sequence[Word | None] | None],
    original: Image.Image,
    layout: Layout,
    style: Style,
    options: SheetOptions,
    top: float,
) -> None:
    for start in range(0, len(panels), layout.across):
        for row, (model, _) in enumerate(captions):
            label = lettering.shorten(model, 13, layout.width - 2 * options.margin)
            page.text(options.margin, y + 12, label, 13, FAINT)
            for column, panel in enumerate(panels[start : start + layout.across]):
                if panel is not None and (word := panel[row]) is not None:
                    spot = Spot(options.margin + column * (layout.cell + GAP), y + 20, layout.panel)
                    _panel(page, spot, word, original, layout, style, options, top)
            y += layout.panel[1] + options.label + GAP + 20
        y += GAP


def _panel(
    page: Canvas,
    spot: Spot,
    word: Word | None,
    original: Image.Image,
    layout: Layout,
    style: Style,
    options: SheetOptions,
    top: float,
) -> None:
    """A picture with the map of a word, and its label; the picture alone without a word."""
    image = _fit(original, spot.panel, page.density)
    below = spot.y + spot.panel[1]
    if word is None:
        page.picture(spot.x, spot.y, *spot.panel, image)
        page.text(spot.x, below + 22, "the picture", 17, FAINT)
        return
    page.picture(spot.x, spot.y, *spot.panel, painting.paint_word(image, word, top, style))
    if spot.small:
        page.text(spot.x, below + 15, lettering.shorten(word.text, 13, max(spot.panel[0], 46)), 13, FAINT)
    else:
        _label(page, spot.x, below, layout.cell, word, bars=options.bars)


def _fit(image: Image.Image, panel: tuple[float, float], density: float) -> Image.Image:
    size = max(1, round(panel[0] * density)), max(1, round(panel[1] * density))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _header(captions: Named, room: float, options: SheetOptions) -> list[_Line]:
    lines = []
    for model, caption in captions:
        if len(captions) > 1:
            lines.append(_Line(lettering.shorten(model, 13, room), 13, FAINT, 26))
        if options.title:
            texts = lettering.wrap(caption.text or "(no words)", 24, room)
            lines += [_Line(text, 24, INK, 30) for text in texts]
    picture = captions[0][1].picture
    if picture is not None and options.name:
        name = picture.name if options.full_path else lettering.shown_name(picture)
        lines.append(_Line(lettering.shorten(name, 13, room), 13, FAINT, 24))
    return lines


def _label(page: Canvas, x: float, y: float, width: float, word: Word, *, bars: bool) -> None:
    page.text(x, y + 22, lettering.shorten(word.text, 19, width), 19, INK)
    if not bars:
        return
    for line, (name, value, color) in enumerate((("p", word.probability, PROBABILITY), ("gate", word.gate, GATE))):
        below = y + 41 + 16 * line
        length = max(width - 34 - 36, 0)
        page.text(x, below, name, 12, FAINT)
        page.box(x + 34, below - 7, length, 6, TRACK)
        page.box(x + 34, below - 7, length * min(max(value, 0.0), 1.0), 6, color)
        page.text(x + width - 30, below, f"{value:.2f}", 12, INK)


def _notes(captions: Named, style: Style, options: SheetOptions, room: float) -> list[str]:
    """The explanations of the legend, in lines."""
    notes = []
    if style.name == "contour":
        notes.append("Inside the thick line: cells with half of the attention; thin lines: a quarter, three quarters.")
    elif style.per_word:
        notes.append("Attention; every word has its own scale.")
    else:
        notes.append("Attention as a multiple of an even look (1); one scale for all words.")
    if style.name in ("spotlight", "blocks"):
        notes.append("Inside the line: the cells with half of it.")
    if options.bars:
        notes += ["p: probability of the word.", "gate: how much of what it saw the model used."]
    if any(word.cell is not None for _, caption in captions for word in caption.words):
        notes.append("Outlined: the sampled or likeliest cell.")
    return lettering.wrap("  ".join(notes), 12, room)


def _legend(page: Canvas, x: float, y: float, top: float, style: Style, notes: list[str], *, below: bool) -> None:
    left, first = (x, y + 51) if below else (x + BAR + GAP, y + 11)
    if style.name == "contour":
        left, first = x, y + 11
    for line, note in enumerate(notes):
        page.text(left, first + 16 * line, note, 12, INK)
    if style.name == "contour":
        return
    page.picture(x, y, BAR, 12, painting.legend(round(BAR * page.density), max(1, round(12 * page.density)), style))
    page.text(x, y + 28, "0", 12, INK)
    if style.per_word:
        page.text(x + BAR - 66, y + 28, "word's peak", 12, INK)
        return
    even = BAR / top
    page.box(x + even, y + 12, 1, 5, INK)
    if even > 14:
        page.text(x + even - 3, y + 28, "1", 12, INK)
    page.text(x + BAR - 24, y + 28, f"{top:.1f}", 12, INK)
