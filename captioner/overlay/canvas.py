"""The canvas that a sheet is drawn on. One layout serves pixels, SVG and PDF, because all three implement it."""

from __future__ import annotations

from typing import Protocol

from PIL import Image, ImageDraw

from captioner.overlay import lettering

Color = tuple[int, int, int]


class Canvas(Protocol):
    """A page with its origin at the upper left. Lengths are in points; y of a text is its baseline."""

    density: float  # pixels per point of the pictures on it

    def text(self, x: float, y: float, text: str, size: int, color: Color) -> None: ...

    def box(self, x: float, y: float, width: float, height: float, fill: Color) -> None: ...

    def picture(self, x: float, y: float, width: float, height: float, image: Image.Image) -> None: ...


class Raster:
    """A canvas of pixels, `density` of them per point."""

    def __init__(self, width: float, height: float, density: float = 1.0) -> None:
        self.density = density
        self.image = Image.new("RGB", (round(width * density), round(height * density)), (255, 255, 255))
        self._draw = ImageDraw.Draw(self.image)

    def text(self, x: float, y: float, text: str, size: int, color: Color) -> None:
        drawable, font = lettering.fitting(text, round(size * self.density))
        self._draw.text((x * self.density, y * self.density), drawable, fill=color, font=font, anchor="ls")

    def box(self, x: float, y: float, width: float, height: float, fill: Color) -> None:
        left, top = round(x * self.density), round(y * self.density)
        right, bottom = round((x + width) * self.density), round((y + height) * self.density)
        if right > left and bottom > top:
            self._draw.rectangle((left, top, right - 1, bottom - 1), fill=fill)

    def picture(self, x: float, y: float, width: float, height: float, image: Image.Image) -> None:
        size = (round(width * self.density), round(height * self.density))
        if image.size != size:
            image = image.resize(size, Image.Resampling.LANCZOS)
        self.image.paste(image, (round(x * self.density), round(y * self.density)))
