"""The page for people: drop a photo, read the caption, and see where the model looked for each word.

It is one HTML file with its scripts and style sheets inside, and its policy allows connections to the service only.
The page itself is that of captioner.web, with the service as its engine.
"""

from __future__ import annotations

from functools import lru_cache

from captioner.overlay.embedding import html_document, module_script, style_sheet
from captioner.serve.caption_request import LARGEST
from captioner.serve.service_settings import MEGABYTE, ServiceSettings
from captioner.web.photo_page import SCRIPTS, STYLE_SHEETS, photo_page_body

_OWN_SCRIPTS = ("captioner.serve/service_client.js", "captioner.serve/service_page.js")
_ACTIONS = """<button type="button" id="sheet">Download the sheet</button>
<button type="button" id="page">Download the page</button>
"""
_IN_BROWSER = '<a href="web/">Caption in this browser instead</a>'
_TOKEN = """<form id="token" hidden>
<label>This service needs a token <input type="password" name="token" autocomplete="off" required></label>
<button type="submit">Use it</button>
</form>
"""


@lru_cache(maxsize=4)
def web_page(settings: ServiceSettings) -> str:
    """The whole page. It is the same for every visitor."""
    body = photo_page_body(
        header=f'{_IN_BROWSER if settings.web else ""}<a href="docs">HTTP calls</a>',
        promise="You can also paste one. It goes to this service only, and it is not stored.",
        footer=f"""<noscript>
<p>This page needs JavaScript. <code>POST /v1/caption</code> works without it.</p>
</noscript>
<p class="limit">Photos up to {settings.max_body // MEGABYTE} MB: JPEG, PNG, WebP, GIF, TIFF, AVIF.</p>""",
        largest_beam=LARGEST["beam"],
        actions=_ACTIONS,
        before=_TOKEN,
        fields='<label id="models" hidden>Model <select name="model"></select></label>\n',
        data=f' data-max-body="{settings.max_body}"',
    )
    return html_document(
        "captioner",
        body,
        style_sheet=style_sheet(*STYLE_SHEETS),
        script=module_script(*SCRIPTS, *_OWN_SCRIPTS),
        module=True,
        connect="'self'",
    )
