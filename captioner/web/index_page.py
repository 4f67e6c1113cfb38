"""index.html and the files that make the page of a web folder an app: its policy, its manifest and its icons."""

from __future__ import annotations

import io
import json
from html import escape

from PIL import Image, ImageDraw

from captioner.web.photo_page import photo_page_body

# Scripts of this folder and WebAssembly, nothing from elsewhere, and no connections to others. `blob:` is for the
# worker, which inherits this policy, and for pictures.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'"
)
# The headers by which a browser isolates a page from others, and then gives it threads.
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LARGEST_BEAM = 20
ICON_SIZES = (192, 512)
_PAPER, _DARK_PAPER = "#ffffff", "#15171c"  # those of page.css


def index_page(model: str, style_sheets: tuple[str, ...]) -> str:
    """The page. Everything it needs is beside it."""
    body = photo_page_body(
        header='<span class="where">in this browser</span>',
        promise="You can also paste one. It stays on this device: this page sends nothing to anyone.",
        footer="""<noscript><p>This page needs JavaScript: it captions photos in the browser.</p></noscript>
<p class="limit" id="about"></p>""",
        largest_beam=LARGEST_BEAM,
        before='<p id="loading"><progress max="1" value="0" aria-label="Loading the model"></progress> '
        "<span>Loading the model …</span></p>\n",
    )
    # The page allows itself these pictures; they are those of the manifest.
    icons = "\n".join(f'<link rel="icon" sizes="{size}x{size}" href="icon-{size}.png">' for size in ICON_SIZES)
    links = "\n".join(f'<link rel="stylesheet" href="{name}">' for name in style_sheets)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="theme-color" media="(prefers-color-scheme: light)" content="{_PAPER}">
<meta name="theme-color" media="(prefers-color-scheme: dark)" content="{_DARK_PAPER}">
<meta name="description" content="Captions for photos with the model {escape(model)}, computed in the browser">
<title>captioner</title>
<link rel="manifest" href="app.webmanifest">
{icons}
<link rel="apple-touch-icon" href="icon-{ICON_SIZES[0]}.png">
{links}
</head>
<body>
{body}
<script type="module" src="browser_page.js"></script>
</body>
</html>
"""


def app_manifest(model: str) -> str:
    """The web app manifest, by which a browser can install the page."""
    icons = [
        {"src": f"icon-{size}.png", "sizes": f"{size}x{size}", "type": "image/png", "purpose": purpose}
        for size in ICON_SIZES
        for purpose in ("any", "maskable")
    ]
    content = {
        "name": "captioner",
        "short_name": "captioner",
        "description": f"Captions for photos with the model {model}, computed on this device",
        "start_url": "./",
        "scope": "./",
        "display": "standalone",
        "background_color": _PAPER,
        "theme_color": _PAPER,
        "icons": icons,
    }
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def icon(size: int) -> bytes:
    """A grid of cells with one of them lit: an attention map."""
    image = Image.new("RGB", (size, size), _DARK_PAPER)
    draw = ImageDraw.Draw(image)
    cell = size // 8  # the grid is 4x4, in the part of the picture that no mask cuts off
    for row in range(4):
        for col in range(4):
            distance = abs(row - 1) + abs(col - 2)
            light = (255, 214, 102) if distance == 0 else (150, 160, 180) if distance == 1 else (80, 88, 104)
            left, top = size // 4 + col * cell, size // 4 + row * cell
            gap = max(1, size // 64)
            draw.rectangle((left + gap, top + gap, left + cell - gap, top + cell - gap), fill=light)
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return data.getvalue()
