"""The page for people: drop a photo, read the caption, and see where the model looked for each word.

It is one HTML file with its scripts and style sheets inside. It shows captions in the viewer of the overlay pages, and
its policy allows connections to the service only.
"""

from __future__ import annotations

from functools import lru_cache

from captioner.overlay.embedding import VIEWER_SCRIPTS, html_document, module_script, style_sheet
from captioner.serve.caption_request import LARGEST
from captioner.serve.service_settings import MEGABYTE, ServiceSettings
from captioner.writers.wording import STYLES

SCRIPTS = (
    *VIEWER_SCRIPTS,
    "captioner.serve/service_client.js",
    "captioner.serve/camera.js",
    "captioner.serve/web_page.js",
)
STYLE_SHEETS = ("viewer.css", "page.css", "captioner.serve/web_page.css")


@lru_cache(maxsize=4)
def web_page(settings: ServiceSettings) -> str:
    """The whole page. It is the same for every visitor."""
    styles = "".join(f'<option value="{name}">{name}</option>' for name in STYLES)
    body = f"""<header>
<h1>captioner</h1>
<a href="docs">HTTP calls</a>
</header>
<main id="main" data-max-body="{settings.max_body}">
<section id="start" aria-label="Choose a photo">
<p class="big">Drop a photo here</p>
<p>You can also paste one. It goes to this service only, and it is not stored.</p>
<div class="buttons">
<button type="button" id="choose" class="primary">Choose a photo</button>
<button type="button" id="camera">Take a photo</button>
<span id="actions" class="buttons" hidden>
<button type="button" id="copy">Copy as alt text</button>
<button type="button" id="sheet">Download the sheet</button>
<button type="button" id="page">Download the page</button>
</span>
</div>
<input type="file" id="file" accept="image/*,.heic,.heif" multiple hidden aria-label="Photos">
<input type="file" id="capture" accept="image/*" capture="environment" hidden aria-label="Photo from the camera">
</section>
<form id="token" hidden>
<label>This service needs a token <input type="password" name="token" autocomplete="off" required></label>
<button type="submit">Use it</button>
</form>
<p id="error" role="alert" hidden></p>
<p id="status" role="status"></p>
<section id="result" aria-label="The caption" hidden><div id="viewer"></div></section>
<details id="options">
<summary>Options</summary>
<form>
<label id="models" hidden>Model <select name="model"></select></label>
<label>Beam <input type="number" name="beam" min="1" max="{LARGEST["beam"]}" step="1" placeholder="model's own"></label>
<label>Required words <input name="required" placeholder="dog, ball|frisbee" autocomplete="off"></label>
<label>Forbidden words <input name="forbidden" placeholder="man, woman" autocomplete="off"></label>
<label>Style <select name="style">{styles}</select></label>
<div class="buttons">
<button type="submit">Caption again</button>
<button type="reset">Reset</button>
</div>
</form>
</details>
<section id="history" aria-label="Photos of this visit" hidden>
<h2>Photos of this visit</h2>
<ol></ol>
</section>
</main>
<div id="dropping" aria-hidden="true">Drop the photo</div>
<dialog id="webcam" aria-label="Take a photo">
<video autoplay playsinline muted></video>
<div class="buttons">
<button type="button" class="primary">Take the photo</button>
<button type="button">Cancel</button>
</div>
</dialog>
<noscript><p>This page needs JavaScript. <code>POST /v1/caption</code> works without it.</p></noscript>
<p class="limit">Photos up to {settings.max_body // MEGABYTE} MB: JPEG, PNG, WebP, GIF, TIFF, AVIF.</p>"""
    return html_document(
        "captioner",
        body,
        style_sheet=style_sheet(*STYLE_SHEETS),
        script=module_script(*SCRIPTS),
        module=True,
        connect="'self'",
    )
