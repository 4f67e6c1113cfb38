"""Hostile files: valid ones of every kind, changed at random."""

from __future__ import annotations

import io
import json
import random
from typing import Any

from PIL import Image

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "AVIF")
_ODD: tuple[Any, ...] = (
    0,
    1,
    -1,
    2**31,
    2**64,
    10**400,
    1e308,
    float("nan"),
    "",
    "\0",
    "x" * 5000,
    None,
    True,
    [],
    {},
    [[]],
    {"": {}},
)
_TEXTS = ("../../secret", "/etc/passwd", "\x1b[31m", "\u202e", "\ud800", "a\nb", "=1+1", "<script>", "a" * 300)


def pictures(rng: random.Random) -> list[bytes]:
    """A small picture of every format and of several modes."""
    files = []
    for format in FORMATS:
        for mode in ("RGB", "L", "RGBA", "P", "1", "I;16", "CMYK"):
            image = Image.new("RGB", (rng.randrange(1, 60), rng.randrange(1, 60)), (200, 30, 90))
            image.putpixel((0, 0), (rng.randrange(256), 4, 9))
            buffer = io.BytesIO()
            try:
                (image if mode == "RGB" else image.convert("L").convert(mode)).save(buffer, format)
            except (OSError, ValueError, KeyError):
                continue
            files.append(buffer.getvalue())
    for options in ({"progressive": True}, {"exif": _exif()}, {"quality": 1, "subsampling": 2}):
        buffer = io.BytesIO()
        Image.new("RGB", (70, 50), (1, 2, 3)).save(buffer, "JPEG", **options)
        files.append(buffer.getvalue())
    return files


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The file with a few changes: bytes, numbers, cuts, repetitions, parts moved."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not content:
            break
        at = rng.randrange(min(len(content), 200) if rng.random() < 0.5 else len(content))
        match rng.randrange(7):
            case 0:
                content[at] ^= 1 << rng.randrange(8)
            case 1:
                content[at : at + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1"))
            case 2:
                del content[at:]
            case 3:
                del content[at : at + rng.randrange(1, 50)]
            case 4:
                content[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20)))
            case 5:
                content[at:at] = content[at : at + rng.randrange(1, 200)] * rng.randrange(1, 4)
            case _:
                content[at] = rng.randrange(256)
    return bytes(content)


def mutated_json(value: Any, rng: random.Random) -> Any:
    """JSON values with one of them replaced, removed, or of another type."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if rng.random() < 0.05:
            return value | {rng.choice(_TEXTS): 1}
        return value | {key: mutated_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], mutated_json(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.5:
        return rng.choice(_TEXTS)
    return rng.choice(_ODD)


def mutated_text(value: Any, rng: random.Random) -> bytes:
    """A JSON file whose values or bytes were changed."""
    changed = mutated_json(value, rng)
    try:
        text = json.dumps(changed, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
    except (ValueError, TypeError):
        text = b"{}"
    if rng.random() < 0.05:
        return b"[" * 50_000
    return mutated(text, rng) if rng.random() < 0.4 else text


def _exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "description"
    return exif.tobytes()
