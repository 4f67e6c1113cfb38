"""The gallery of a folder: index.html with a thumbnail, the captions and the files of every picture."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from captioner.caption import Caption
from captioner.overlay import geometry, painting
from captioner.overlay.embedding import html_document, module_script, script_json, style_sheet
from captioner.text.nouns import is_content_word

_OPENED_FIRST = ("html", "png", "gif", "webp", "svg", "pdf")  # a thumbnail links to the first of these
_MOST_CELLS = 8  # rows and columns of a map on a thumbnail; finer maps are averaged, to keep the gallery small


@dataclass(frozen=True)
class Card:
    """One picture of the gallery. Addresses are relative to index.html."""

    name: str
    captions: tuple[tuple[str, Caption], ...]  # model and caption
    thumbnail: str
    size: tuple[int, int]  # of the thumbnail
    links: tuple[tuple[str, str], ...]  # format and file


def index(cards: Sequence[Card]) -> str:
    """The gallery as an HTML document, for the folder that the files are in."""
    number = f"{len(cards)} picture" + ("s" if len(cards) != 1 else "")
    items = "\n".join(_item(card) for card in cards)
    body = f"""<main>
<header>
<h1>{number}</h1>
<div id="tools" hidden>
<label>Find a word <input type="search" id="query" list="words" placeholder="dog" autocomplete="off"></label>
<datalist id="words"></datalist>
<label>Sort by <select id="order"><option value="given">order of the run</option><option value="name">name</option>
<option value="least" data-confidence>confidence, least sure first</option>
<option value="most" data-confidence>confidence, most sure first</option></select></label>
</div>
<span id="count" role="status"></span>
</header>
<ul class="cards" id="cards">
{items}
</ul>
</main>
<script type="application/json" id="data">{script_json([_data(card) for card in cards])}</script>"""
    return html_document(
        f"{number} and where the model looked",
        body,
        style_sheet=style_sheet("gallery.css"),
        script=module_script("painting.js", "gallery.js"),
        module=True,
        images="'self' file: data:",
    )


def _item(card: Card) -> str:
    target = next((file for kind in _OPENED_FIRST for name, file in card.links if name == kind), None)
    text = " / ".join(caption.text for _, caption in card.captions)
    image = (
        f'<span class="frame"><img src="{quote(card.thumbnail)}" width="{card.size[0]}" height="{card.size[1]}" '
        f'loading="lazy" alt="{escape(text)}"></span>'
    )
    place = f'<a class="picture" href="{quote(target)}">{image}</a>' if target else f'<div class="well">{image}</div>'
    captions = "".join(
        f'<p class="text">{f"<small>{escape(model)}</small> " if model else ""}'
        f"{escape(caption.text or '(no words)')}{_sureness(caption)}</p>"
        for model, caption in card.captions
    )
    links = " ".join(
        f'<a href="{quote(file)}{"/" if kind == "words" else ""}">{escape(_label(kind, card, file))}</a>'
        for kind, file in card.links
    )
    return (
        f'<li class="card">{place}<div class="about">{captions}<p class="name">{escape(_file(card.name))}</p>'
        f'<p class="links">{links}</p></div></li>'
    )


def _sureness(caption: Caption) -> str:
    return "" if caption.confidence is None else f' <small class="sure">{caption.confidence:.0%} sure</small>'


def _data(card: Card) -> dict[str, Any]:
    """What the script needs: the content words of the first caption, with their positions and maps."""
    caption = card.captions[0][1]
    top = painting.top_of_scale(caption)
    maps = {
        i: _coarse(geometry.density(word.alpha))
        for i, word in enumerate(caption.words)
        if is_content_word(word.text) and word.text not in [other.text for other in caption.words[:i]]
    }
    rows, cols = next(iter(maps.values())).shape if maps else (1, 1)
    return {
        "name": _file(card.name),
        "confidence": caption.confidence,
        "rows": rows,
        "cols": cols,
        "words": [[caption.words[i].text, i, _bytes(values / top)] for i, values in maps.items()],
    }


def _coarse(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """A map of at most `_MOST_CELLS` rows and columns; each cell is the mean of those that it replaces."""
    for axis in (0, 1):
        parts = np.array_split(values, min(_MOST_CELLS, values.shape[axis]), axis=axis)
        values = np.stack([part.mean(axis=axis) for part in parts], axis=axis)
    return values


def _bytes(levels: NDArray[np.float32]) -> str:
    return base64.b64encode(np.rint(255 * np.clip(levels, 0, 1)).astype(np.uint8).tobytes()).decode("ascii")


def _file(name: str) -> str:
    return PurePath(name.replace("\\", "/")).name


def _label(kind: str, card: Card, file: str) -> str:
    """The format, or the name of the file where each model has a file of its own."""
    return kind if sum(name == kind for name, _ in card.links) == 1 else file
