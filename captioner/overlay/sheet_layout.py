"""The layout of a sheet: which words get a panel, how large the panels are, and where they stand. Lengths in points."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from captioner.caption import Word
from captioner.errors import UsageError
from captioner.text.nouns import is_content_word

GAP = 18
SIDE = 232  # a panel has the area of a square with this side
LABEL, SHORT_LABEL, SMALL_LABEL = 64, 30, 22  # height of the text under a panel: with bars, without, function words
NARROWEST, WIDEST = 560, 1600  # width of a sheet
PAPER_SCALE = 0.42  # of a sheet with a given width: words are then set in 8 points, for a column of a paper
_LENGTHS = {"mm": 72 / 25.4, "cm": 72 / 2.54, "in": 72.0, "pt": 1.0}


@dataclass(frozen=True)
class SheetOptions:
    """What a sheet shows.

    Attributes:
        words: "all", "content" (without "a", "of", …), or a tuple of the words to show.
        columns: Panels side by side; None chooses.
        title: Whether the sentence stands above the panels.
        name: Whether the name of the picture's file is shown.
        full_path: Whether the name has its folders.
        bars: Whether probability and gate stand under the panels.
        width: Width for print, such as "84mm" (a column of a paper); None takes the width that the panels need.
    """

    words: str | tuple[str, ...] = "all"
    columns: int | None = None
    title: bool = True
    name: bool = True
    full_path: bool = False
    bars: bool = True
    width: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.words, str) and self.words not in ("all", "content"):
            raise UsageError(f"words must be 'all', 'content' or a tuple of words, not {self.words!r}")
        if self.columns is not None and not 1 <= self.columns <= 50:
            raise UsageError(f"columns {self.columns} is not between 1 and 50")
        length_in_points(self.width)

    def shows(self, word: Word) -> bool:
        """Whether a word gets a panel."""
        if isinstance(self.words, tuple):
            return word.text in self.words
        return self.words == "all" or is_content_word(word.text)

    @property
    def label(self) -> int:
        return LABEL if self.bars else SHORT_LABEL

    @property
    def margin(self) -> int:
        """A figure of a paper has no margin of its own."""
        return 28 if self.width is None else 0

    @property
    def scale(self) -> float:
        """Points on paper per point of the layout."""
        return 1.0 if self.width is None else PAPER_SCALE


def length_in_points(text: str | None) -> float | None:
    """A length such as "84mm", "8.4 cm", "3.3in" or "240pt"."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(mm|cm|in|pt)", text.strip().lower())
    points = float(match[1]) * _LENGTHS[match[2]] if match else 0.0
    if not 50 <= points <= 5000:
        raise UsageError(f"width {text!r} is not a length between 50 and 5,000 points, such as 84mm, 17cm or 3.3in")
    return points


@dataclass(frozen=True)
class Spot:
    """The place of a panel: its upper left corner below the header, and its size."""

    x: float
    y: float
    panel: tuple[float, float]
    small: bool = False


@dataclass(frozen=True)
class Layout:
    """The sizes of a sheet."""

    panel: tuple[float, float]
    cell: float  # width of a column
    across: int  # columns side by side
    width: float

    @staticmethod
    def of(size: tuple[int, int], panels: float, rows: int, options: SheetOptions) -> Layout:
        """For pictures of this size. `panels` are columns of words; a small panel counts as half."""
        margin, given = options.margin, length_in_points(options.width)
        side = SIDE if rows == 1 else 0.8 * SIDE
        stretch = math.sqrt(size[0] / size[1])
        width, height = side * stretch, side / stretch
        scale = min(1.0, 2 * side / max(width, height))  # a panorama is at most as long as two panels
        panel: tuple[float, float] = (max(1, round(width * scale)), max(1, round(height * scale)))
        cell: float = max(panel[0], 132)
        if given is not None:
            total = given / options.scale
            across = options.columns or max(1, min(math.ceil(panels), round((total + GAP) / (cell + GAP))))
            cell = (total - (across - 1) * GAP) / across
            return Layout(_fitted(panel, cell), cell, across, total)
        most = max(1, int((WIDEST - 2 * margin + GAP) // (cell + GAP)))
        # A sheet is about as wide as high, a comparison is wider. Then the panels are spread evenly over the rows.
        tall = panel[1] + options.label + GAP
        ideal = math.sqrt((1.3 if rows == 1 else 2.5 * rows) * panels * tall / (cell + GAP))
        across = min(most, math.ceil(panels), max(1, round(ideal)))
        across = math.ceil(panels / math.ceil(panels / across)) if panels else 1
        if options.columns is not None:
            across = options.columns
            cell = min(cell, (WIDEST - 2 * margin + GAP) / across - GAP)
            panel = _fitted(panel, cell)
        return Layout(panel, cell, across, max(2 * margin + across * (cell + GAP) - GAP, NARROWEST))

    def shrunk_to(self, spots: Sequence[Spot], margin: int) -> Layout:
        """As wide as the panels need."""
        used = max((spot.x + (self.cell if not spot.small else spot.panel[0]) for spot in spots), default=0.0)
        return replace(self, width=max(2 * margin + math.ceil(used), NARROWEST))

    def small_panel(self, label: int) -> tuple[float, float]:
        """The size of a panel of a function word: two of them, with their labels, are as high as one large panel."""
        height = max(1.0, (self.panel[1] + label - 8) / 2 - SMALL_LABEL)
        return max(1.0, height * self.panel[0] / self.panel[1]), height

    def spots(self, small: Sequence[bool], label: int) -> tuple[list[Spot], float]:
        """Where panels stand, in reading order, and the height of all rows. Small ones stand two in a column."""
        room = self.across * (self.cell + GAP)
        small_panel = self.small_panel(label)
        narrow = max(small_panel[0], min(46.0, self.cell))
        spots: list[Spot] = []
        x, y, number = 0.0, 0.0, 0
        while number < len(small):
            pair = small[number] and small[number + 1 : number + 2] == [True]
            width = narrow if small[number] else self.cell
            if x > 0 and x + width > room - GAP + 0.5:
                x, y = 0.0, y + self.panel[1] + label + GAP
            if small[number]:
                spots.append(Spot(x, y, small_panel, small=True))
                if pair:
                    spots.append(Spot(x, y + small_panel[1] + SMALL_LABEL + 8, small_panel, small=True))
            else:
                spots.append(Spot(x, y, self.panel))
            x += width + GAP
            number += 2 if pair else 1
        return spots, y + self.panel[1] + label + GAP if spots else 0.0


def _fitted(panel: tuple[float, float], cell: float) -> tuple[float, float]:
    """A panel that fits into a column."""
    scale = min(1.0, cell / panel[0]) if panel[0] > cell else cell / panel[0]
    height = panel[1] * scale
    return (cell, height) if height <= 2.2 * cell else (panel[0] * 2.2 * cell / panel[1], 2.2 * cell)
