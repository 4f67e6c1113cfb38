"""A canvas that writes SVG by hand: text stays text, pictures are embedded, nothing is fetched."""

from __future__ import annotations

import base64
import io
from html import escape

from PIL import Image

from captioner.overlay.canvas import Color


def embed(image: Image.Image, quality: int = 88) -> str:
    """A picture as a JPEG in a data URI."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


class Svg:
    """Pictures at two pixels a point, enough for print at the sheet's own size."""

    density = 2.0

    def __init__(self, width: float, height: float, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._parts: list[str] = []

    def text(self, x: float, y: float, text: str, size: int, color: Color) -> None:
        self._parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{_hex(color)}">{_xml(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, fill: Color) -> None:
        self._parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{_hex(fill)}"/>')

    def picture(self, x: float, y: float, width: float, height: float, image: Image.Image) -> None:
        self._parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'preserveAspectRatio="none" href="{embed(image)}"/>'
        )

    def finish(self) -> str:
        """The whole document."""
        size = f'width="{self._width:g}" height="{self._height:g}"'
        box = f'viewBox="0 0 {self._width:g} {self._height:g}"'
        return "\n".join(
            [
                '<?xml version="1.0" encoding="UTF-8"?>',
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} {box} role="img" '
                'font-family="Helvetica, Arial, Liberation Sans, sans-serif">',
                f"<title>{_xml(self._title)}</title>",
                '<rect width="100%" height="100%" fill="#ffffff"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _hex(color: Color) -> str:
    return "#{:02x}{:02x}{:02x}".format(*color)


def _xml(text: str) -> str:
    """Escaped, without the control characters that XML 1.0 has no way to write."""
    return escape(
        "".join(c if c >= " " and c not in "\ufffe\uffff" and not "\ud800" <= c <= "\udfff" else " " for c in text)
    )
