"""A caption in a notebook: the viewer in a frame, and below it the maps as plain pictures.

Notebooks that are not trusted, and sites that show notebooks, remove frames and scripts. They keep the second part: it
has no script, no style sheet and no address.
"""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from html import escape
from importlib import import_module
from pathlib import Path

from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError
from captioner.overlay import painting
from captioner.overlay.embedding import data_uri
from captioner.overlay.lettering import shown_name
from captioner.overlay.page import page
from captioner.overlay.painting import Style

PICTURE_SIDE = 360  # pixels of the longer side
MAP_SIDE = 150
FRAME_HEIGHT = 720  # pixels; the page sets its own height where it may
_GRID_CELL = 24  # pixels per cell where a map is drawn without its picture


def show(caption: Caption, style: Style | None = None) -> None:
    """Show a caption in the viewer: in the notebook, or in a browser where there is none."""
    if _in_notebook():
        display = import_module("IPython.display")  # a notebook has it; captioner doesn't need it
        display.display(display.HTML(frame_html(caption, style)))
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="captioner-", suffix=".html", delete=False) as file:
        file.write(page(caption, style))
    webbrowser.open(Path(file.name).as_uri())


def _in_notebook() -> bool:
    """Whether IPython runs this code with a front end that shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def caption_html(caption: Caption) -> str:
    """What a notebook shows for a caption. Without its picture, the maps are drawn on plain grey."""
    try:
        frame = frame_html(caption)
    except CaptionerError:
        return maps_html(caption)
    return f"{frame}<details><summary>The maps as pictures</summary>{maps_html(caption)}</details>"


def frame_html(caption: Caption, style: Style | None = None) -> str:
    """The page of a caption in a frame."""
    document = escape(page(caption, style), quote=True)
    return f'<iframe srcdoc="{document}" title="{escape(caption.text)}" width="100%" height="{FRAME_HEIGHT}"></iframe>'


def maps_html(caption: Caption) -> str:
    """The picture, the sentence and one small map per word, as a fragment that every notebook shows."""
    style, top = Style(), painting.top_of_scale(caption)
    try:
        image: Image.Image | None = painting.fit(
            painting.upright(caption.picture, min_side=2 * PICTURE_SIDE), PICTURE_SIDE
        )
    except CaptionerError:
        image = None
    sentence = escape(caption.sentence or "(no words)")
    name = escape(shown_name(caption.picture))
    parts = [f'<p style="font-size: 120%; margin: 4px 0"><strong>{sentence}</strong></p>']
    if image is not None:
        parts.insert(0, _img(image, sentence))
    small = painting.fit(image, MAP_SIDE) if image is not None else None
    figures = [_word(word, painting.paint_word(small or _plain(word), word, top, style)) for word in caption.words]
    parts.append(f"<div>{''.join(figures)}</div>")
    parts.append(f'<p style="margin: 4px 0"><small>{name}{" · " if name else ""}score {caption.score:.3f}</small></p>')
    return f"<div>{''.join(parts)}</div>"


def _word(word: Word, painted: Image.Image) -> str:
    text = escape(word.text)
    return (
        '<div style="display: inline-block; margin: 0 8px 8px 0; vertical-align: top">'
        f"{_img(painted, f'attention map of the word {text}')}<br>{text} <small>{word.probability:.2f}</small></div>"
    )


def _img(image: Image.Image, escaped_description: str) -> str:
    return (
        f'<img src="{data_uri(image, 85)}" width="{image.width}" height="{image.height}" alt="{escaped_description}">'
    )


def _plain(word: Word) -> Image.Image:
    rows, cols = word.alpha.shape
    return Image.new("RGB", (_GRID_CELL * cols, _GRID_CELL * rows), painting.GREY)
