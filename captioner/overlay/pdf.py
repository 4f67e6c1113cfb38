"""A canvas that writes a one-page PDF: text is text in embedded fonts, attention maps are images.

reportlab writes the file: it is BSD-licensed, pure Python, needs only Pillow, and embeds subsets of TrueType fonts. It
is the optional extra `pdf`, so that the base install stays small.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

from PIL import Image

from captioner.errors import UsageError
from captioner.installation import install_command
from captioner.overlay import lettering
from captioner.overlay.canvas import Color, Raster

_TEXT_DENSITY = 4  # pixels per point where text has to be an image


def check_installed() -> None:
    """Raise an error that says how to install reportlab, where it is missing."""
    if find_spec("reportlab") is None:
        raise UsageError(f"PDF files need the package reportlab: {install_command('pdf')}")


class Pdf:
    """Images have two pixels per point, in JPEG."""

    density = 2.0

    def __init__(self, width: float, height: float, scale: float, title: str) -> None:
        """Width and height of the layout; `scale` is the number of points on paper for one of the layout."""
        check_installed()
        from reportlab.pdfgen.canvas import Canvas

        self._buffer = io.BytesIO()
        self._height = height
        # A canvas without a first font of its own refers to Helvetica, which would not be embedded.
        first_font: Any = _register(lettering.font(12))  # Any: the stubs have the wrong type
        self._canvas = Canvas(
            self._buffer, pagesize=(width * scale, height * scale), invariant=True, initialFontName=first_font
        )
        self._canvas.scale(scale, scale)
        self._canvas.setTitle(title.encode("utf-8", "replace").decode())
        self._canvas.setAuthor("")
        self._canvas.setSubject("")
        self._canvas.setCreator("captioner")
        self._canvas.setViewerPreference("DisplayDocTitle", "true")

    def text(self, x: float, y: float, text: str, size: int, color: Color) -> None:
        drawn, font = lettering.fitting(text, size)
        name = _register(font)
        if name is None:
            self._text_as_image(x, y, drawn, size, color)
            return
        self._canvas.setFont(name, size)
        self._canvas.setFillColorRGB(*_unit(color))
        self._canvas.drawString(x, self._height - y, drawn)

    def _text_as_image(self, x: float, y: float, text: str, size: int, color: Color) -> None:
        raster = Raster(lettering.width(text, size) + 2, 1.5 * size, _TEXT_DENSITY)
        raster.text(0, size, text, size, color)
        self.picture(x, y - size, raster.image.width / _TEXT_DENSITY, raster.image.height / _TEXT_DENSITY, raster.image)

    def box(self, x: float, y: float, width: float, height: float, fill: Color) -> None:
        self._canvas.setFillColorRGB(*_unit(fill))
        self._canvas.rect(x, self._height - y - height, width, height, stroke=0, fill=1)

    def picture(self, x: float, y: float, width: float, height: float, image: Image.Image) -> None:
        from reportlab.lib.utils import ImageReader

        jpeg = io.BytesIO()
        image.convert("RGB").save(jpeg, "JPEG", quality=90, optimize=True)
        jpeg.seek(0)
        self._canvas.drawImage(ImageReader(jpeg), x, self._height - y - height, width, height)

    def finish(self) -> bytes:
        """The whole document."""
        self._canvas.showPage()
        self._canvas.save()
        return self._buffer.getvalue()


def _register(font: lettering.Font) -> str | None:
    """Make a font known to reportlab. None for fonts that it cannot embed: those without TrueType outlines."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFError, TTFont

    name = "captioner " + " ".join(part for part in font.getname() if part)
    if name not in pdfmetrics.getRegisteredFontNames():
        source = io.BytesIO(font.path.getvalue()) if isinstance(font.path, io.BytesIO) else font.path
        try:
            pdfmetrics.registerFont(TTFont(name, source))
        except TTFError:
            return None
    return name


def _unit(color: Color) -> tuple[float, float, float]:
    return color[0] / 255, color[1] / 255, color[2] / 255
