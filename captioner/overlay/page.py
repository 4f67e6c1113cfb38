"""The page: one HTML file without network access that shows a caption in the viewer.

The scripts and style sheets are written into the page. The page's Content-Security-Policy allows only these, by their
hashes, so no caption and no file name can bring in a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import UsageError
from captioner.images.reading import Picture
from captioner.overlay import painting
from captioner.overlay.embedding import VIEWER_SCRIPTS, data_uri, html_document, module_script, script_json, style_sheet
from captioner.overlay.lettering import shown_name
from captioner.overlay.painting import Style
from captioner.overlay.sheet import columns
from captioner.overlay.view import view_of

LONG_SIDE = 1000  # pixels of the embedded picture: sharp on a screen, small enough for mail
NEXT = "<!--next-->"  # replaced by the link to the next page, which is known only later


@dataclass(frozen=True)
class Links:
    """Files beside the page that it links to; empty where there is none."""

    gallery: str = ""
    previous: str = ""


def page(caption: Caption, style: Style | None = None) -> str:
    """The page of one caption and its alternatives."""
    return page_of([("", caption)], style)


def page_of(
    captions: Sequence[tuple[str, Caption]],
    style: Style | None = None,
    *,
    links: Links | None = None,
    full_path: bool = False,
) -> str:
    """A page with the captions of several models side by side. Shared words are shown together.

    The page shows the name of the picture's file, with its folders if `full_path`.
    """
    if not captions:
        raise UsageError("there is no caption to show; give one or more")
    first = captions[0][1]
    image = painting.fit(painting.upright(first.picture, min_side=LONG_SIDE), LONG_SIDE)
    title = first.text or "(no words)"
    if len(captions) > 1:
        title = "Where the models looked: " + ", ".join(model for model, _ in captions)
    tracks = "\n".join(_track(i, model, caption, image, len(captions)) for i, (model, caption) in enumerate(captions))
    tables = "\n".join(_table(model, caption) for model, caption in captions)
    body = f"""<main>
{_navigation(first.picture, links or Links(), full_path)}
<h1 class="visually-hidden">{escape(title)}</h1>
<div class="tracks">
{tracks}
</div>
<details class="table"><summary>All words as a table</summary>
{tables}
</details>
<p class="about">A map shows which parts of the picture the model weighted when it chose a word; the white line encloses
the cells with half of the weight. It doesn't prove that the word depended on them. <span class="hint">Point at the
picture, or focus it and use the arrow keys, to see for which words the model looked there.</span></p>
</main>
<script type="application/json" id="data">{_data(captions, style or Style())}</script>"""
    return html_document(
        title,
        body,
        style_sheet=style_sheet("viewer.css", "page.css"),
        script=module_script(*VIEWER_SCRIPTS, "page.js"),
        module=True,
    )


def link_to_next(document: str, file: str) -> str:
    """The page with a link to the next one."""
    return document.replace(NEXT, _link("next", file, "next →"), 1)


def _navigation(picture: Picture | None, links: Links, full_path: bool) -> str:
    name = picture.name if picture is not None and full_path else shown_name(picture)
    previous = _link("prev", links.previous, "← previous") if links.previous else ""
    gallery = _link("index", links.gallery, "all pictures") if links.gallery else ""
    return f'<nav>{previous}{gallery}{NEXT}<span class="name">{escape(name)}</span></nav>'


def _link(relation: str, file: str, text: str) -> str:
    return f'<a rel="{relation}" href="{escape(quote(file))}">{text}</a>'


def _track(number: int, model: str, caption: Caption, image: Image.Image, count: int) -> str:
    heading = f"<h2>{escape(model)}</h2>\n" if count > 1 else ""
    picture = (
        f'<img src="{data_uri(image, 85)}" width="{image.width}" height="{image.height}" '
        f'alt="{escape(caption.text or "(no words)")}">'
        if number == 0
        else ""
    )
    return f"""<section class="track" aria-label="{escape(model or "The caption and its picture")}">
{heading}<div class="viewer" id="viewer-{number}">{picture}</div>
</section>"""


def _table(model: str, caption: Caption) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(word.text)}</th><td>{word.probability:.3f}</td><td>{word.gate:.2f}</td>'
        f"<td>{100 * painting.half_area(word.alpha):.0f}&nbsp;%</td><td>{whereabouts(word)}</td></tr>"
        for word in caption.words
    )
    title = f"{model}: {caption.text}" if model else caption.text
    return f"""<div class="scroll"><table><caption>{escape(title)}</caption>
<thead><tr><th scope="col">word</th><th scope="col">probability</th><th scope="col">gate</th>
<th scope="col">half of the attention on</th><th scope="col">looked most at</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>"""


def whereabouts(word: Word) -> str:
    """Where most of the attention is, in words; the same as in word_facts.js."""
    if painting.half_area(word.alpha) > 0.35:
        return "spread over the picture"
    rows, cols = word.alpha.shape
    row, col = divmod(int(word.alpha.argmax()), cols)
    down = ("upper", "middle", "lower")[min(2, int(3 * (row + 0.5) / rows))]
    across = ("left", "centre", "right")[min(2, int(3 * (col + 0.5) / cols))]
    return "centre" if (down, across) == ("middle", "centre") else f"{down} {across}"


def _data(captions: Sequence[tuple[str, Caption]], style: Style) -> str:
    indices = [{id(word): i for i, word in enumerate(caption.words)} for _, caption in captions]
    table = columns([caption for _, caption in captions])
    content = {
        "style": {"style": style.name, "grid": style.grid, "perWord": style.per_word, "opacity": style.opacity},
        "top": painting.top_of_scale(*(caption for _, caption in captions)) if len(captions) > 1 else None,
        "columns": [
            [-1 if word is None else indices[t][id(word)] for t, word in enumerate(column)] for column in table
        ],
        "tracks": [view_of(caption) for _, caption in captions],
    }
    return script_json(content)
