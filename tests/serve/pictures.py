"""Small pictures, and their base64."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from tests.tiny_bundle import SIDE


def png(seed: int = 0, size: int = SIDE) -> bytes:
    """Four squares of random colors."""
    data = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
    Image.fromarray(pixels.repeat(size // 2, 0).repeat(size // 2, 1)).save(data, "PNG")
    return data.getvalue()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
