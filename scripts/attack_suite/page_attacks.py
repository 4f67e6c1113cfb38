"""Pages whose words, file names and model names are markup and scripts, opened in Chromium.

Wrong is a script that ran, a message on the console (such as that of the page's policy, which stopped a script), and
a request for anything but the page.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from captioner.caption import Caption
from captioner.evaluation.report import Example, Report, render
from captioner.evaluation.tables import Row, Section
from captioner.files.atomic import write_atomically
from captioner.overlay import gallery, page_of
from captioner.writers.review_page import ReviewPage
from tests.overlay.browser import CHROMIUM, DRIVER, complaints, open_browser, requests
from tests.overlay.handmade_captions import caption as handmade_caption
from tests.overlay.handmade_captions import picture

_PARTS = (
    "<script>attacked=1</script>",
    "</script><script>attacked=1//",
    '"><img src=x onerror=attacked=1>',
    "' onmouseover='attacked=1",
    '" autofocus onfocus="attacked=1',
    "<svg onload=attacked=1>",
    "<iframe srcdoc='<script>parent.attacked=1</script>'>",
    "<base href=http://127.0.0.1:9/>",
    "<meta http-equiv=refresh content=0;url=http://127.0.0.1:9/>",
    "<link rel=stylesheet href=http://127.0.0.1:9/a.css>",
    "<style>*{background:url(http://127.0.0.1:9/)}</style>",
    "javascript:attacked=1",
    "<!--",
    "-->",
    "]]>",
    "<!--next-->",
    "{{number}}",
    "${attacked=1}",
    "\\u003cscript>",
    "\\",
    "&lt;script&gt;",
    "%3Cscript%3E",
    "\0",
    "\x1b[31m",
    "\u2028",
    "\u202e",
    "\udcff",
    "__proto__",
    "constructor",
    "x" * 3000,
    "dog",
)


def _text(rng: random.Random, parts: int = 3) -> str:
    return "".join(rng.choice(_PARTS) for _ in range(rng.randint(1, parts)))


def _caption(rng: random.Random) -> Caption:
    shown = picture(60, 40, name=f"photos/{_text(rng).replace('/', '')}.jpg")
    base = handmade_caption("a b c d", of=shown, alternatives=["a b"])

    def hostile(caption: Caption) -> Caption:
        words = [replace(word, text=_text(rng, 2), alternatives=((_text(rng), 0.5),)) for word in caption.words]
        return replace(caption, words=tuple(words))

    return replace(hostile(base), alternatives=tuple(hostile(other) for other in base.alternatives), confidence=0.5)


def _overlay_page(path: Path, rng: random.Random) -> None:
    models = [(_text(rng), _caption(rng)) for _ in range(rng.randint(1, 2))]
    write_atomically(path, page_of(models, full_path=rng.random() < 0.5))


def _gallery(path: Path, rng: random.Random) -> None:
    thumbnail = path.with_name("thumbnail.png")
    _caption(rng).picture.open().save(thumbnail)  # type: ignore[union-attr]
    file = _text(rng).replace("\udcff", "")  # overlays have names that every system can store
    cards = [
        gallery.Card(_text(rng), ((_text(rng), _caption(rng)),), thumbnail.name, (60, 40), (("html", file),))
        for _ in range(3)
    ]
    write_atomically(path, gallery.index(cards))


def _review_page(path: Path, rng: random.Random) -> None:
    path.unlink(missing_ok=True)
    page = ReviewPage(path)
    for _ in range(3):
        page.write(_text(rng), _caption(rng))
    page.close()


def _report(path: Path, rng: random.Random) -> None:
    section = Section(_text(rng), (Row(_text(rng), _text(rng), remark=_text(rng)),), _text(rng))
    example = Example(_caption(rng), (_text(rng), _text(rng)), 1.0)
    texts = (_text(rng),)
    report = Report(_text(rng), _text(rng), (section,), (), (example,), (example,), _text(rng), texts, texts)
    write_atomically(path, render(report))


_PAGES: tuple[Callable[[Path, random.Random], None], ...] = (_overlay_page, _gallery, _review_page, _report)


def pages(folder: Path, rng: random.Random, end: float) -> tuple[int, list[str]]:
    if not CHROMIUM or not DRIVER:
        return 0, ["no browser found"]
    tried, bad = 0, list[str]()
    path = folder / "page.html"
    with open_browser() as driver:
        while time.monotonic() < end:
            make = rng.choice(_PAGES)
            make(path, rng)
            complaints(driver), requests(driver)
            driver.get(path.as_uri())
            driver.execute_script("document.querySelectorAll('.cv-sentence button').forEach((word) => word.click())")
            time.sleep(0.05)
            ran = driver.execute_script("return typeof attacked !== 'undefined'")
            allowed = {path.as_uri(), (folder / "thumbnail.png").as_uri()}
            asked = {url for url in requests(driver) if not url.startswith("blob:")} - allowed
            messages = complaints(driver)
            tried += 1
            if ran or asked or messages:
                kept = path.rename(folder / f"bad-{tried}.html").read_text(errors="replace")
                bad.append(f"{make.__name__}: ran {ran}, requests {asked}, console {messages}: {kept[:200]}")
    return tried, bad


ATTACKS = {"pages": pages}
