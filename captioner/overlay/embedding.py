"""Pages that need no network: one document frame, pictures as data URIs, scripts and styles allowed by their hash."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from functools import lru_cache
from html import escape
from importlib import resources

from PIL import Image

# The modules of the viewer, in the order in which an inline script needs them. viewer.css belongs to them.
VIEWER_SCRIPTS = ("painting.js", "stage.js", "style_controls.js", "word_facts.js", "viewer.js")


def data_uri(image: Image.Image, quality: int = 88) -> str:
    """A picture as a JPEG in a data URI."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


@lru_cache(maxsize=16)
def asset(name: str) -> str:
    """A script or style sheet of this package, or of another one: "captioner.serve/web_page.js"."""
    package, _, file = name.rpartition("/")
    return resources.files(package or "captioner.overlay").joinpath(file).read_text(encoding="utf-8").strip()


@lru_cache(maxsize=4)
def module_script(*names: str) -> str:
    """Modules as one inline module, in this order. An inline module cannot import the others."""
    return "\n".join(_IMPORT.sub("", asset(name)) for name in names)


@lru_cache(maxsize=4)
def style_sheet(*names: str) -> str:
    """Style sheets as one."""
    return "\n".join(asset(name) for name in names)


_IMPORT = re.compile(r'^import .* from "\./\w+\.js";\n', re.MULTILINE)


def policy_hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def script_json(content: object) -> str:
    """JSON for a script element: without the characters that could end it or open a comment."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def html_document(
    title: str,
    body: str,
    *,
    style_sheet: str,
    script: str = "",
    module: bool = False,
    images: str = "data:",
    connect: str = "",
) -> str:
    """A whole page. Its policy allows this style sheet, this script and images from `images`, and nothing else.

    `body` is HTML; `title` is text. `connect` is where the script may send requests to.
    """
    policy = f"default-src 'none'; img-src {images}; base-uri 'none'; form-action 'none'"
    if connect:
        policy += f"; connect-src {connect}"
    if script:
        policy += f"; script-src '{policy_hash(script)}'"
    policy += f"; style-src '{policy_hash(style_sheet)}'"
    kind = ' type="module"' if module else ""
    element = f"<script{kind}>{script}</script>\n" if script else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="captioner">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style_sheet}</style>
</head>
<body>
{body}
{element}</body>
</html>
"""
