"""The gallery of a folder: index.html with a thumbnail, the captions and the files of every picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from captioner.overlay.embedding import asset, html_document

_OPENED_FIRST = ("html", "png", "gif", "svg", "pdf")  # a thumbnail links to the first of these that was written


@dataclass(frozen=True)
class Card:
    """One picture of the gallery. Addresses are relative to index.html."""

    name: str
    captions: tuple[tuple[str, str], ...]  # model and text
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
<label id="search" hidden>Search the captions <input type="search" id="query"></label>
<span id="count" role="status"></span>
</header>
<ul class="cards" id="cards">
{items}
</ul>
</main>"""
    return html_document(
        f"{number} and where the model looked",
        body,
        style_sheet=asset("gallery.css"),
        script=asset("gallery.js"),
        images="'self' file: data:",
    )


def _item(card: Card) -> str:
    target = next((file for kind in _OPENED_FIRST for name, file in card.links if name == kind), None)
    text = " / ".join(text for _, text in card.captions)
    image = (
        f'<img src="{quote(card.thumbnail)}" width="{card.size[0]}" height="{card.size[1]}" loading="lazy" '
        f'alt="{escape(text)}">'
    )
    if target:
        image = f'<a class="picture" href="{quote(target)}">{image}</a>'
    captions = "".join(
        f'<p class="text">{f"<small>{escape(model)}</small> " if model else ""}{escape(text or "(no words)")}</p>'
        for model, text in card.captions
    )
    links = " ".join(
        f'<a href="{quote(file)}{"/" if kind == "words" else ""}">{escape(_label(kind, card, file))}</a>'
        for kind, file in card.links
    )
    return (
        f'<li class="card">{image}<div class="about">{captions}<p class="name">{escape(card.name)}</p>'
        f'<p class="links">{links}</p></div></li>'
    )


def _label(kind: str, card: Card, file: str) -> str:
    """The format, or the name of the file where each model has a file of its own."""
    return kind if sum(name == kind for name, _ in card.links) == 1 else file
