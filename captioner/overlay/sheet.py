"""The sheet: the picture, then one panel per word with its map, probability and gate, and a legend.

Several captions, one per model, make a comparison, in which shared words are in one column. One layout serves pixels,
SVG and PDF.
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
from captioner.overlay.svg import Svg

INK: Color = (22, 24, 29)
FAINT: Color = (88, 92, 102)
TRACK: Color = (226, 228, 233)
PROBABILITY: Color = (0, 90, 156)
GATE: Color = (176, 84, 0)

MARGIN, GAP = 28, 18
SIDE = 232  # a panel has the area of a square with this side
LABEL = 64  # height of the text under a panel
NARROWEST, WIDEST = 560, 1600  # width of a sheet
BAR = 220  # length of the color bar in the legend
C = TypeVar("C", bound=Canvas)


def sheet(caption: Caption, style: Style | None = None, *, density: float = 1.0) -> Image.Image:
    """One picture of the whole sentence, with `density` pixels per point."""
    return _draw([("", caption)], style, lambda w, h, _: Raster(w, h, density)).image


def sheet_svg(caption: Caption, style: Style | None = None) -> str:
    """The sheet as an SVG document."""
    return _draw([("", caption)], style, Svg).finish()


def sheet_pdf(caption: Caption, style: Style | None = None) -> bytes:
    """The sheet as a PDF document of one page."""
    return _draw([("", caption)], style, Pdf).finish()


Named = Sequence[tuple[str, Caption]]  # name of a model and its caption; the name is empty where there is only one


def comparison(captions: Named, style: Style | None = None, *, density: float = 1.0) -> Image.Image:
    """A sheet with one row per model and one column per word."""
    return _draw(captions, style, lambda w, h, _: Raster(w, h, density)).image


def comparison_svg(captions: Named, style: Style | None = None) -> str:
    """The comparison as an SVG document."""
    return _draw(captions, style, Svg).finish()


def comparison_pdf(captions: Named, style: Style | None = None) -> bytes:
    """The comparison as a PDF document of one page."""
    return _draw(captions, style, Pdf).finish()


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
class _Layout:
    """The sizes of a sheet, in points."""

    panel: tuple[int, int]
    cell: int  # width of a column
    across: int  # columns side by side
    width: int

    @staticmethod
    def of(size: tuple[int, int], panels: int, rows: int) -> _Layout:
        side = SIDE if rows == 1 else 0.8 * SIDE
        stretch = math.sqrt(size[0] / size[1])
        width, height = side * stretch, side / stretch
        scale = min(1.0, 2 * side / max(width, height))  # a panorama is at most as long as two panels
        panel = max(1, round(width * scale)), max(1, round(height * scale))
        cell = max(panel[0], 132)
        most = max(1, (WIDEST - 2 * MARGIN + GAP) // (cell + GAP))
        # A sheet is about as wide as high, a comparison is wider. Then the panels are spread evenly over the rows.
        tall = panel[1] + LABEL + GAP
        ideal = math.sqrt((1.3 if rows == 1 else 2.5 * rows) * panels * tall / (cell + GAP))
        across = min(most, panels, max(1, round(ideal)))
        across = math.ceil(panels / math.ceil(panels / across)) if panels else 1
        return _Layout(panel, cell, across, max(2 * MARGIN + across * (cell + GAP) - GAP, NARROWEST))


@dataclass(frozen=True)
class _Line:
    text: str
    size: int
    color: Color
    height: int  # distance from the line before


def _draw(captions: Named, style: Style | None, canvas: Callable[[float, float, str], C]) -> C:
    style = style or Style()
    if not captions:
        raise UsageError("there is no caption to draw; give one or more")
    first = captions[0][1]
    original = painting.upright(first.picture, min_side=1200)
    comparing = len(captions) > 1
    # The grid has one spot per column of words; on a sheet of one caption, the first spot is the picture (None).
    spots: list[list[Word | None] | None] = [*columns([caption for _, caption in captions])]
    if not comparing:
        spots.insert(0, None)
    layout = _Layout.of(original.size, len(spots), len(captions))
    top = painting.top_of_scale(*(caption for _, caption in captions))

    # The texts are laid out before the canvas is created, because they determine its height.
    indent = layout.panel[0] + GAP if comparing else 0
    header = _header(captions, 0.9 * (layout.width - 2 * MARGIN - indent))
    head = sum(line.height for line in header)
    if comparing:
        head = max(head, layout.panel[1])
    notes = _notes(captions, style, 0.9 * (layout.width - 2 * MARGIN - BAR - GAP))
    row_height = layout.panel[1] + LABEL + GAP + (20 if comparing else 0)
    bands = math.ceil(len(spots) / layout.across)
    body = bands * len(captions) * row_height + max(0, bands - 1) * (GAP if comparing else 0)
    foot = max(32, 16 * len(notes))
    page = canvas(layout.width, MARGIN + head + GAP + body + foot + MARGIN, first.text)

    if comparing:
        page.picture(MARGIN, MARGIN, *layout.panel, _fit(original, layout.panel, page.density))
    y: float = MARGIN
    for line in header:
        y += line.height
        page.text(MARGIN + indent, y - 8, line.text, line.size, line.color)
    y = MARGIN + head + GAP

    original = _fit(original, layout.panel, page.density)
    for start in range(0, len(spots), layout.across):
        for row, (model, _) in enumerate(captions):
            if comparing:
                page.text(MARGIN, y + 12, lettering.shorten(model, 13, layout.width - 2 * MARGIN), 13, FAINT)
            panel_y = y + (20 if comparing else 0)
            for column, spot in enumerate(spots[start : start + layout.across]):
                x = MARGIN + column * (layout.cell + GAP)
                if spot is None:
                    page.picture(x, panel_y, *layout.panel, original)
                    page.text(x, panel_y + layout.panel[1] + 22, "the picture", 17, FAINT)
                elif (word := spot[row]) is not None:
                    page.picture(x, panel_y, *layout.panel, painting.paint_word(original, word, top, style))
                    _label(page, x, panel_y + layout.panel[1], layout.cell, word)
            y += row_height
        y += GAP if comparing else 0
    _legend(page, MARGIN + head + GAP + body, top, style, notes)
    return page


def _fit(image: Image.Image, panel: tuple[int, int], density: float) -> Image.Image:
    size = round(panel[0] * density), round(panel[1] * density)
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


def _header(captions: Named, room: float) -> list[_Line]:
    lines = []
    for model, caption in captions:
        if len(captions) > 1:
            lines.append(_Line(lettering.shorten(model, 13, room), 13, FAINT, 26))
        texts = lettering.wrap(caption.text or "(no words)", 24, room)
        lines += [_Line(text, 24, INK, 30) for text in texts]
    picture = captions[0][1].picture
    if picture is not None:
        lines.append(_Line(lettering.shorten(picture.name, 13, room), 13, FAINT, 24))
    return lines


def _label(page: Canvas, x: float, y: float, width: float, word: Word) -> None:
    page.text(x, y + 22, lettering.shorten(word.text, 19, width), 19, INK)
    for line, (name, value, color) in enumerate((("p", word.probability, PROBABILITY), ("gate", word.gate, GATE))):
        below = y + 41 + 16 * line
        length = width - 34 - 36
        page.text(x, below, name, 12, FAINT)
        page.box(x + 34, below - 7, length, 6, TRACK)
        page.box(x + 34, below - 7, length * min(max(value, 0.0), 1.0), 6, color)
        page.text(x + width - 30, below, f"{value:.2f}", 12, INK)


def _notes(captions: Named, style: Style, room: float) -> list[str]:
    """The explanations of the legend, in lines."""
    notes = [
        "Attention; every word has its own scale."
        if style.per_word
        else "Attention as a multiple of an even spread (1); one scale for all words.",
        "p: probability of the word.",
        "gate: how much of what it saw the model used.",
    ]
    if any(word.cell is not None for _, caption in captions for word in caption.words):
        notes.append("Outlined: the sampled or likeliest cell.")
    return lettering.wrap("  ".join(notes), 12, room)


def _legend(page: Canvas, y: float, top: float, style: Style, notes: list[str]) -> None:
    bar = painting.legend(round(BAR * page.density), round(12 * page.density), style)
    page.picture(MARGIN, y, BAR, 12, bar)
    page.text(MARGIN, y + 28, "0", 12, INK)
    if style.per_word:
        page.text(MARGIN + BAR - 66, y + 28, "word's peak", 12, INK)
    else:
        even = BAR / top
        page.box(MARGIN + even, y + 12, 1, 5, INK)
        if even > 14:
            page.text(MARGIN + even - 3, y + 28, "1", 12, INK)
        page.text(MARGIN + BAR - 24, y + 28, f"{top:.1f}", 12, INK)
    for line, note in enumerate(notes):
        page.text(MARGIN + BAR + GAP, y + 11 + 16 * line, note, 12, INK)
