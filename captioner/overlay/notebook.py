"""A caption as an HTML fragment for a notebook cell: the picture, the sentence and one small map per word.

The fragment has no script, no style sheet and no address: images are data URIs and styles are attributes. Notebooks
that sanitise their output therefore show it unchanged.
"""

from __future__ import annotations

from html import escape

from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import CaptionerError
from captioner.overlay import painting
from captioner.overlay.embedding import data_uri
from captioner.overlay.painting import Style

PICTURE_SIDE = 360  # pixels of the longer side
MAP_SIDE = 150
_GRID_CELL = 24  # pixels per cell where a map is drawn without its picture


def caption_html(caption: Caption) -> str:
    """The fragment. Where the picture cannot be opened any more, the maps are drawn on plain grey."""
    style, top = Style(), painting.top_of_scale(caption)
    try:
        image: Image.Image | None = painting.fit(
            painting.upright(caption.picture, min_side=2 * PICTURE_SIDE), PICTURE_SIDE
        )
    except CaptionerError:
        image = None
    sentence = escape(caption.sentence or "(no words)")
    name = escape(caption.picture.name) if caption.picture is not None else ""
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
