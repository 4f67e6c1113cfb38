"""Text for drawings: a font that has the letters, and text that fits a width.

Pillow contains a font with the letters of English. For other letters, the fonts of the system are tried. Where none has
them, accents are removed.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import lru_cache
from pathlib import PurePath

from PIL import ImageFont

from captioner.images.reading import Picture

Font = ImageFont.FreeTypeFont

# Pillow finds them by name. Those with most letters come first.
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


def shown_name(picture: Picture | None) -> str:
    """The file name without its folders: overlays are mailed to others."""
    return PurePath(picture.name.replace("\\", "/")).name if picture is not None else ""


@lru_cache(maxsize=64)
def font(size: int, name: str | None = None) -> Font:
    """Pillow's own font, or one of the system."""
    loaded = ImageFont.load_default(size) if name is None else ImageFont.truetype(name, size)
    assert isinstance(loaded, ImageFont.FreeTypeFont)
    return loaded


@lru_cache(maxsize=4096)
def _has(name: str | None, letter: str) -> bool:
    """Whether a font can draw a letter: the result differs from that of a letter that no font has."""
    if letter.isspace():
        return True
    candidate = font(20, name)
    return bytes(candidate.getmask(letter)) != bytes(candidate.getmask("\uffff"))


@lru_cache(maxsize=1)
def _installed() -> tuple[str, ...]:
    installed = []
    for name in _SYSTEM_FONTS:
        try:
            font(20, name)
        except OSError:
            continue
        installed.append(name)
    return tuple(installed)


def fitting(text: str, size: int) -> tuple[str, Font]:
    """The text and a font that can draw it. Letters that no font has lose their accents, or become boxes."""
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
    """The width of a line of text, in pixels."""
    drawable, fitting_font = fitting(text, size)
    return fitting_font.getlength(drawable)


def shorten(text: str, size: int, room: float) -> str:
    """The text, cut with an ellipsis where it is wider than `room`."""
    shown = text[: int(room) + 1]  # a letter is wider than a pixel, and measuring a very long text takes long
    if shown == text and width(text, size) <= room:
        return text
    fitting_letters = bisect_right(range(1, len(shown) + 1), room, key=lambda n: width(shown[:n] + "…", size))
    return shown[:fitting_letters].rstrip() + "…"


def wrap(text: str, size: int, room: float) -> list[str]:
    """The text in lines no wider than `room`. A word that is wider is cut."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return [shorten(line, size, room) for line in lines]
