"""Parts of pages that need no network: pictures as data URIs, scripts and styles with the hash that allows them."""

from __future__ import annotations

import base64
import hashlib
import io
from functools import lru_cache
from importlib import resources

from PIL import Image


def data_uri(image: Image.Image, quality: int = 88) -> str:
    """A picture as a JPEG in a data URI."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


@lru_cache(maxsize=4)
def asset(name: str) -> str:
    """A script or style sheet of this package."""
    return resources.files("captioner.overlay").joinpath(name).read_text(encoding="utf-8").strip()


def policy_hash(text: str) -> str:
    """The hash by which a Content-Security-Policy allows a script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
