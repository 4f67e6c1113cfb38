"""A contact sheet: many photos on one picture, each with the map of its most visual word and its caption."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import UsageError
from captioner.files.atomic import write_atomically
from captioner.files.existing import is_occupied
from captioner.overlay import lettering, painting
from captioner.overlay.canvas import Raster
from captioner.overlay.painting import Style
from captioner.overlay.sheet import FAINT, INK
from captioner.text.nouns import is_content_word

TILE = (248, 186)  # pixels for a photo
TEXT = 62  # pixels for its caption
COLUMNS, ROWS = 6, 8
GAP = 14
_KINDS = (".png", ".jpg", ".jpeg")


def check_contact_sheet(path: Path) -> None:
    """Refuse a file that is neither PNG nor JPEG, or whose folder does not exist."""
    if path.suffix.lower() not in _KINDS:
        raise UsageError(f"{path}: a contact sheet is a .png or .jpg file")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder does not exist; create it first")


def most_visual(words: Sequence[Word]) -> Word | None:
    """The word that a viewer opens with (`visualness` in viewer.js); None if there is no content word."""

    def visualness(word: Word) -> float:
        if word.evidence is None:
            return painting.focus(word.alpha) * word.gate
        gained = (word.evidence.seen - word.evidence.blurred) / math.log(1000)
        return painting.focus(word.alpha) * min(max(gained, 0.0), 1.0)

    return max((word for word in words if is_content_word(word.text)), key=visualness, default=None)


class ContactSheet:
    """Writes a file per 48 photos: NAME.png, NAME-2.png, … Numbers whose files exist are left out."""

    def __init__(self, path: Path, style: Style | None = None, *, overwrite: bool = False) -> None:
        check_contact_sheet(path)
        self.path, self.style, self.overwrite = path, style or Style(), overwrite
        self._number = 0  # of the last file
        self._tiles: list[Image.Image] = []
        self.files: list[Path] = []

    def add(self, caption: Caption) -> None:
        """Draw the tile of a caption."""
        self._tiles.append(tile(caption, self.style))
        if len(self._tiles) == COLUMNS * ROWS:
            self.finish()

    def finish(self) -> None:
        """Write the tiles that are not written yet."""
        if not self._tiles:
            return
        path = self._next_path()
        while is_occupied(path) and not self.overwrite:
            path = self._next_path()
        across = min(COLUMNS, len(self._tiles))
        down = -(-len(self._tiles) // across)
        width, height = TILE[0], TILE[1] + TEXT
        page = Image.new("RGB", (GAP + across * (width + GAP), GAP + down * (height + GAP)), (255, 255, 255))
        for i, image in enumerate(self._tiles):
            row, col = divmod(i, across)
            page.paste(image, (GAP + col * (width + GAP), GAP + row * (height + GAP)))
        write_atomically(path, _encoded(page, path))
        self.files.append(path)
        self._tiles = []

    def _next_path(self) -> Path:
        self._number += 1
        return self.path if self._number == 1 else self.path.with_stem(f"{self.path.stem}-{self._number}")


def tile(caption: Caption, style: Style) -> Image.Image:
    """A photo with the map of its most visual word, which is named below it, and the caption."""
    canvas = Raster(TILE[0], TILE[1] + TEXT)
    word = most_visual(caption.words)
    image = painting.upright(caption.picture, min_side=2 * max(TILE))
    image.thumbnail(TILE, Image.Resampling.LANCZOS, reducing_gap=3.0)
    if word is not None:
        image = painting.paint_word(image, word, painting.top_of_scale(caption), style)
    x, y = (TILE[0] - image.width) / 2, (TILE[1] - image.height) / 2
    canvas.picture(x, y, image.width, image.height, image)
    lines = lettering.wrap(caption.text or "(no words)", 13, TILE[0])[:2]
    for number, line in enumerate(lines):
        canvas.text(0, TILE[1] + 16 + 16 * number, line, 13, INK)
    about = lettering.shown_name(caption.picture) + (f" · map of “{word.text}”" if word else "")
    canvas.text(0, TILE[1] + 52, lettering.shorten(about, 11, TILE[0]), 11, FAINT)
    return canvas.image


def _encoded(image: Image.Image, path: Path) -> bytes:
    buffer = io.BytesIO()
    if path.suffix.lower() == ".png":
        image.save(buffer, "PNG", compress_level=3)
    else:
        image.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()
