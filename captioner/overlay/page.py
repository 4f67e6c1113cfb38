"""The page: one HTML file without network access. Pointing at a word shows its map, pointing at a cell its words.

page.js and page.css are written into the page. The page's Content-Security-Policy allows only these two, by their
hashes, so no caption and no file name can bring in a script.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from captioner.caption import Caption, Word
from captioner.errors import UsageError
from captioner.overlay import heat
from captioner.overlay.colors import COLOR_MAP
from captioner.overlay.embedding import asset, data_uri, html_document
from captioner.overlay.heat import Style
from captioner.overlay.sheet import columns

LONG_SIDE = 1000  # pixels of the embedded picture: sharp on a screen, small enough for mail
UNIT = 100_000  # weights are written as whole numbers, in units of 1 / UNIT


def page(caption: Caption, style: Style | None = None) -> str:
    """The page of one caption and its alternatives."""
    return page_of([("", caption)], style)


def page_of(captions: Sequence[tuple[str, Caption]], style: Style | None = None) -> str:
    """A page with the captions of several models side by side. Shared words are shown together."""
    style = style or Style()
    if not captions:
        raise UsageError("there is no caption to show; give one or more")
    first = captions[0][1]
    image = heat.upright(first.picture, min_side=LONG_SIDE)
    scale = min(1.0, LONG_SIDE / max(image.size))
    if scale < 1:
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    name = escape(first.picture.name if first.picture else "")
    title = first.text or "(no words)"
    if len(captions) > 1:
        title = "Where the models looked: " + ", ".join(model for model, _ in captions)
    tracks = "\n".join(_track(i, model, caption, image, len(captions)) for i, (model, caption) in enumerate(captions))
    others = "\n".join(_others(i, model, caption) for i, (model, caption) in enumerate(captions))
    tables = "\n".join(_table(model, caption) for model, caption in captions)
    body = f"""<main>
<h1>{escape(title)}</h1>
<p class="name">{name}</p>
<div class="tracks">
{tracks}
</div>
<div class="key"><span class="of-gate">gate: how much of what it saw the model used</span>
<span class="of-spread">spread: empty is one cell, full is the whole picture</span></div>
<div class="controls" id="controls" hidden>
<div class="steps">
<button type="button" id="back" aria-label="Previous word">←</button>
<button type="button" id="play" aria-label="Play the sentence">▶ Play</button>
<button type="button" id="next" aria-label="Next word">→</button>
</div>
<label>Opacity <input type="range" id="opacity" min="0" max="100" value="{round(100 * style.opacity)}"></label>
<label><input type="checkbox" id="blocks"{" checked" if style.blocks else ""}> Blocks</label>
<label><input type="checkbox" id="per-word"{" checked" if style.per_word else ""}> Own scale for each word</label>
<div class="legend"><canvas id="legend" width="256" height="1" role="img"
 aria-label="Colors of attention, from black for none to light yellow for most"></canvas>
<div class="ticks" id="ticks"></div></div>
</div>
<div class="tracks">
{others}
</div>
<div id="live" aria-live="polite" class="visually-hidden"></div>
<details><summary>All words as a table</summary>
{tables}
</details>
<p class="hint">Point at a word, tap it or use the arrow keys to see where the model looked for it. Point at the
picture, or focus it and use the arrow keys, to see for which words the model looked there. Attention is given as a
multiple of an even spread over the picture.</p>
</main>
<script type="application/json" id="data">{_data(captions)}</script>"""
    return html_document(title, body, style_sheet=asset("page.css"), script=asset("page.js"))


def _track(number: int, model: str, caption: Caption, image: Image.Image, count: int) -> str:
    heading = f"<h2>{escape(model)}</h2>\n" if count > 1 else ""
    source = f' src="{data_uri(image, 85)}"' if number == 0 else ""
    label = f"{model}: the picture" if model else "The picture"
    return f"""<section class="track" id="track-{number}" aria-label="{escape(model or "The caption and its picture")}">
{heading}<div class="stage" tabindex="0" role="application"
 aria-label="{escape(label)}. Arrow keys move over it and name the words for which the model looked there.">
<img{source} width="{image.width}" height="{image.height}" alt="{escape(caption.text or "(no words)")}">
<canvas aria-hidden="true"></canvas><span class="mark cell" hidden></span><span class="mark here" hidden></span>
</div>
<div class="sentence" role="toolbar" aria-label="Words of the caption"></div>
<p class="facts"></p>
</section>"""


def _others(number: int, model: str, caption: Caption) -> str:
    """The element in which page.js lists the n best sentences."""
    if not caption.alternatives:
        return f'<div id="others-{number}"></div>'
    heading = f"{model}: best sentences, by score" if model else "Best sentences, by score"
    return f'<section class="others" id="others-{number}"><h2>{escape(heading)}</h2></section>'


def _table(model: str, caption: Caption) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{escape(word.text)}</th><td>{word.probability:.3f}</td><td>{word.gate:.2f}</td>'
        f"<td>{100 * spread(word):.0f}&nbsp;%</td><td>{peak_position(word)}</td></tr>"
        for word in caption.words
    )
    title = f"{model}: {caption.text}" if model else caption.text
    return f"""<div class="scroll"><table><caption>{escape(title)}</caption>
<thead><tr><th scope="col">word</th><th scope="col">probability</th><th scope="col">gate</th>
<th scope="col">spread</th><th scope="col">looked most at</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>"""


def spread(word: Word) -> float:
    """The entropy of the map relative to its maximum: 0 for one cell, 1 for a flat map."""
    return word.entropy / math.log(word.alpha.size) if word.alpha.size > 1 else 0.0


def peak_position(word: Word) -> str:
    """The position of the highest attention, in words."""
    if spread(word) > 0.97:
        return "evenly everywhere"
    rows, cols = word.alpha.shape
    row, col = divmod(int(np.argmax(word.alpha)), cols)
    down = ("upper", "middle", "lower")[min(2, int(3 * (row + 0.5) / rows))]
    across = ("left", "centre", "right")[min(2, int(3 * (col + 0.5) / cols))]
    return "centre" if (down, across) == ("middle", "centre") else f"{down} {across}"


def _data(captions: Sequence[tuple[str, Caption]]) -> str:
    indices = [{id(word): i for i, word in enumerate(caption.words)} for _, caption in captions]
    table = columns([caption for _, caption in captions])
    content = {
        "unit": UNIT,
        "leastTop": heat.LEAST_TOP,
        "colorMap": COLOR_MAP.tobytes().hex(),
        "columns": [
            [-1 if word is None else indices[t][id(word)] for t, word in enumerate(column)] for column in table
        ],
        "tracks": [
            {"model": model, "sentences": [_sentence(shown) for shown in (caption, *caption.alternatives)]}
            for model, caption in captions
        ],
    }
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    # Inside a script element, these characters could end it or open a comment.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sentence(caption: Caption) -> dict[str, Any]:
    rows, cols = caption.words[0].alpha.shape if caption.words else (1, 1)
    return {
        "text": caption.text,
        "score": _finite(caption.score),
        "rows": rows,
        "cols": cols,
        "words": [
            {
                "text": word.text,
                "p": _finite(word.probability),
                "gate": _finite(word.gate),
                "spread": _finite(spread(word)),
                "where": peak_position(word),
                "cell": word.cell,
                "alpha": np.rint(word.alpha.ravel().astype(np.float64) * UNIT).astype(int).tolist(),
            }
            for word in caption.words
        ],
    }


def _finite(value: float) -> float:
    return round(float(value), 6) if math.isfinite(value) else 0.0
