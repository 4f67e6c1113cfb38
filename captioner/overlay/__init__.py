"""Drawings of where the model looked: a sheet, one picture per word, an animation, a page, or arrays.

    from captioner import Captioner, overlay

    caption = Captioner.load()("photo.jpg")
    overlay.sheet(caption).save("photo-overlay.png")
    Path("photo.html").write_text(overlay.page(caption))

Drawing needs only Pillow and numpy; PDF also needs reportlab.
"""

from __future__ import annotations

from captioner.overlay.animation import animation, animation_of
from captioner.overlay.arrays import arrays, arrays_npz
from captioner.overlay.figure import figure
from captioner.overlay.page import page, page_of
from captioner.overlay.painting import Style
from captioner.overlay.sheet import comparison, comparison_pdf, comparison_svg, sheet, sheet_pdf, sheet_svg
from captioner.overlay.sheet_layout import SheetOptions
from captioner.overlay.stills import words, words_png
from captioner.overlay.view import view_of

__all__ = [
    "SheetOptions",
    "Style",
    "animation",
    "animation_of",
    "arrays",
    "arrays_npz",
    "comparison",
    "comparison_pdf",
    "comparison_svg",
    "figure",
    "page",
    "page_of",
    "sheet",
    "sheet_pdf",
    "sheet_svg",
    "view_of",
    "words",
    "words_png",
]
