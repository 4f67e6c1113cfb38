"""The markup of the page that captions photos: of `captioner serve`, and of a folder that captions in the browser.

photo_page.js brings it to life, and says what the two pages give it.
"""

from __future__ import annotations

from captioner.overlay.embedding import VIEWER_SCRIPTS
from captioner.writers.wording import STYLES

SCRIPTS = (
    *VIEWER_SCRIPTS,
    "captioner.web/caption_table.js",
    "captioner.web/camera.js",
    "captioner.web/photo_page.js",
)
STYLE_SHEETS = ("viewer.css", "page.css", "captioner.web/photo_page.css")


def photo_page_body(
    *,
    header: str,
    promise: str,
    footer: str,
    largest_beam: int,
    actions: str = "",
    before: str = "",
    fields: str = "",
    data: str = "",
) -> str:
    """The body of the page. All arguments but `largest_beam` are HTML.

    `promise` says where photos go, `actions` are further buttons for a caption, `before` stands before the messages,
    `fields` are further options, and `data` are attributes for scripts.
    """
    styles = "".join(f'<option value="{name}">{name}</option>' for name in STYLES)
    return f"""<header>
<h1>captioner</h1>
{header}
</header>
<main id="main"{data}>
<section id="start" aria-label="Choose a photo">
<p class="big">Drop a photo here</p>
<p>{promise}</p>
<div class="buttons">
<button type="button" id="choose" class="primary">Choose a photo</button>
<button type="button" id="camera">Take a photo</button>
<button type="button" id="stop" hidden>Stop</button>
<span id="actions" class="buttons" hidden>
<button type="button" id="copy">Copy as alt text</button>
<button type="button" id="table">Download captions (CSV)</button>
{actions}</span>
</div>
<input type="file" id="file" accept="image/*,.heic,.heif" multiple hidden aria-label="Photos">
<input type="file" id="capture" accept="image/*" capture="environment" hidden aria-label="Photo from the camera">
</section>
{before}<p id="error" role="alert" hidden></p>
<p id="status" role="status"></p>
<section id="result" aria-label="The caption" hidden><div id="viewer"></div></section>
<details id="options">
<summary>Options</summary>
<form>
{fields}<label>Beam
<input type="number" name="beam" min="1" max="{largest_beam}" step="1" placeholder="model's own"></label>
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
{footer}"""
