"""Text for drawings: a font that has the letters, and text that fits a width.

Pillow brings a font of its own, which has the letters of English; for others a font of the system is
looked for, and where none has them, accents are dropped before letters are.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from PIL import ImageFont

Font = ImageFont.FreeTypeFont

# Found by name wherever the system keeps its fonts; those with most letters first.
_SYSTEM_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "Arial Unicode.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial.ttf",
    "arial.ttf",
    "msyh.ttc",
)


@lru_cache(maxsize=64)
def font(size: int, name: str | None = None) -> Font:
    """Pillow's own font, or one of the system's; the same objects again and again."""
    one = ImageFont.load_default(size) if name is None else ImageFont.truetype(name, size)
    assert isinstance(one, ImageFont.FreeTypeFont)
    return one


@lru_cache(maxsize=4096)
def _has(name: str | None, letter: str) -> bool:
    """Whether a font can draw a letter: it looks different from a letter that no font has."""
    if letter.isspace():
        return True
    one = font(20, name)
    return bytes(one.getmask(letter)) != bytes(one.getmask("\uffff"))


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    found = []
    for name in _SYSTEM_FONTS:
        try:
            font(20, name)
        except OSError:
            continue
        found.append(name)
    return tuple(found)


def fitting(text: str, size: int) -> tuple[str, Font]:
    """The text and a font that can draw it; letters that no font has lose their accents, then stay boxes."""
    text = "".join(" " if unicodedata.category(letter) in ("Cc", "Cs") else letter for letter in text)
    if all(_has(None, letter) for letter in text):
        return text, font(size)
    for name in _installed():
        if all(_has(name, letter) for letter in text):
            return text, font(size, name)
    best = max((None, *_installed()), key=lambda name: sum(_has(name, letter) for letter in text))
    plain = "".join(letter if _has(best, letter) else _plain(letter) for letter in text)
    return plain, font(size, best)


def _plain(letter: str) -> str:
    return "".join(part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part))


def width(text: str, size: int) -> float:
    """Of a line of text, in pixels."""
    drawn, one = fitting(text, size)
    return one.getlength(drawn)


def shorten(text: str, size: int, room: float) -> str:
    """The text, cut with an ellipsis where it is wider than the room."""
    if width(text, size) <= room:
        return text
    while text and width(text + "…", size) > room:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text: str, size: int, room: float) -> list[str]:
    """The text in lines no wider than the room; a word that is wider by itself is cut."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return [shorten(line, size, room) for line in lines]
