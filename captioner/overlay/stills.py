"""One picture per word, as large as the original, with the values of the word in the file's metadata."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterator

from PIL import Image, PngImagePlugin

from captioner.caption import Caption, Word
from captioner.overlay import painting
from captioner.overlay.painting import Style


def words(caption: Caption, style: Style | None = None) -> Iterator[Image.Image]:
    """The picture with the map of each word, as large as the original."""
    style = style or Style()
    image = painting.upright(caption.picture)
    top = painting.top_of_scale(caption)
    for word in caption.words:
        yield painting.paint_word(image, word, top, style)


def words_png(caption: Caption, style: Style | None = None) -> Iterator[tuple[str, bytes]]:
    """Name and content of one PNG file per word."""
    for number, (word, image) in enumerate(zip(caption.words, words(caption, style), strict=True), 1):
        buffer = io.BytesIO()
        # The fastest compression: the strongest takes eight times as long to save a tenth.
        image.save(buffer, "PNG", compress_level=1, pnginfo=_note(caption, word, number))
        yield f"{number:02d}-{file_name_part(word.text)}.png", buffer.getvalue()


def file_name_part(text: str) -> str:
    """A word for a file name: letters, digits and hyphens."""
    plain = re.sub(r"[^\w]+", "-", unicodedata.normalize("NFC", text)).strip("-_")
    return plain[:40] or "word"


def _note(caption: Caption, word: Word, number: int) -> PngImagePlugin.PngInfo:
    note = PngImagePlugin.PngInfo()
    for key, value in (
        ("Title", f"{caption.text} [word {number}: {word.text}]"),
        ("word", word.text),
        ("probability", f"{word.probability:.6f}"),
        ("gate", f"{word.gate:.6f}"),
        ("entropy", f"{word.entropy:.6f}"),
    ):
        note.add_itxt(key, value)
    return note
