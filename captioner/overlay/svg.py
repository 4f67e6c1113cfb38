"""A canvas that writes SVG. Text stays text, and pictures are embedded.

Written without a library, because three elements are all that it needs.
"""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from html import escape

from PIL import Image

from captioner.overlay import lettering
from captioner.overlay.canvas import Color
from captioner.overlay.embedding import data_uri


class Svg:
    """Pictures have two pixels per point, which is enough for print. The font is embedded if it has all letters."""

    density = 2.0

    def __init__(self, width: float, height: float, scale: float, title: str) -> None:
        """Width and height of the layout; `scale` is the number of points on paper for one of the layout."""
        self._width, self._height, self._scale, self._title = width, height, scale, title
        self._parts: list[str] = []
        self._own_font = False

    def text(self, x: float, y: float, text: str, size: int, color: Color) -> None:
        self._own_font |= lettering.fitting(text, size)[1].getname() == lettering.font(size).getname()
        self._parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{_hex(color)}">{_xml(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, fill: Color) -> None:
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{_hex(fill)}"/>')

    def picture(self, x: float, y: float, width: float, height: float, image: Image.Image) -> None:
        self._parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'preserveAspectRatio="none" href="{data_uri(image)}"/>'
        )

    def finish(self) -> str:
        """The whole document."""
        unit = "" if self._scale == 1 else "pt"
        size = f'width="{self._width * self._scale:g}{unit}" height="{self._height * self._scale:g}{unit}"'
        family = '"captioner", ' if self._own_font else ""
        box = f'viewBox="0 0 {self._width:g} {self._height:g}"'
        return "\n".join(
            [
                '<?xml version="1.0" encoding="UTF-8"?>',
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} role="img" '
                f"font-family='{family}Helvetica, Arial, Liberation Sans, sans-serif'>",
                f"<title>{_xml(self._title)}</title>",
                *([_font_face()] if self._own_font else []),
                '<rect width="100%" height="100%" fill="#ffffff"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


@lru_cache(maxsize=1)
def _font_face() -> str:
    """Pillow's own font, 13 kB, as a style element."""
    source = lettering.font(12).path
    assert isinstance(source, io.BytesIO)  # Pillow has the font in its code
    data = base64.b64encode(source.getvalue()).decode("ascii")
    return f'<style>@font-face {{ font-family: "captioner"; src: url("data:font/ttf;base64,{data}"); }}</style>'


def _hex(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def _xml(text: str) -> str:
    """The text escaped, without the characters that XML 1.0 cannot contain."""
    return escape(
        "".join(c if c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff" else " " for c in text)
    )
