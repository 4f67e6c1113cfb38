"""How much memory a picture takes while it is decoded, from its header alone.

The figures count every copy that exists at one time: buffers of the decoder, Pillow's image, and the copies on the way
to upright RGB. `tests/images/test_limits.py` compares them with the memory that a process really takes.
"""

from __future__ import annotations

from typing import IO, Any

from PIL import Image

from captioner.errors import CaptionerError
from captioner.images.jpeg_scans import count_scans, has_several_scans

_ROW = 8  # bytes per row of a Pillow image: the address of the row
_SMALL = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # bytes per pixel; others have 4

# Bytes per pixel of the buffers of decoders that decode the whole picture at once.
_DECODER_BYTES = {"WEBP": 20, "AVIF": 20, "HEIF": 24, "GIF": 5}

# Pixels times scans that libjpeg decodes in a few seconds. A photo of 50 million pixels with 10 scans has a quarter.
SCAN_WORK = 2_000_000_000
_TIFF_TAGS = {"width": 322, "height": 323, "rows": 278, "bits": 258, "samples": 277}


def decoding_bytes(image: Image.Image, stored_pixels: int, *, scans: int, turned: bool) -> int:
    """Bytes for an image that Pillow has opened. With a draft size, the image is smaller than `stored_pixels`.

    `scans` is that of `jpeg_scans`; `turned` is whether the orientation makes one more copy.
    """
    width, height = image.size
    stored = _SMALL.get(image.mode, 4)
    has_alpha = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    if image.mode == "RGB" and not has_alpha:
        copies = [4]
    elif image.mode in ("I", "F") or image.mode.startswith("I;16"):
        copies = [stored, 1, 1, 4]
    elif has_alpha:
        copies = [stored, 4, 1] if image.mode == "RGBA" else [stored, 4, 4, 1]
    else:
        copies = [stored, 4]
    if turned:
        copies.append(4)
    pillow = sum(height * (width * size + _ROW) for size in copies)
    return pillow + _decoder_bytes(image, stored_pixels, scans)


def webp_canvas(file: IO[bytes]) -> tuple[int, int] | None:
    """Width and height of a WebP file. Pillow's decoder allocates the canvas before it tells them."""
    header = file.read(30)
    file.seek(0)
    if len(header) < 30:
        return None
    if header[12:16] == b"VP8X":
        return int.from_bytes(header[24:27], "little") + 1, int.from_bytes(header[27:30], "little") + 1
    if header[12:16] == b"VP8L":
        bits = int.from_bytes(header[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(header[26:28], "little") & 0x3FFF, int.from_bytes(header[28:30], "little") & 0x3FFF


def webp_bytes(width: int, height: int) -> int:
    return width * height * (_DECODER_BYTES["WEBP"] + 13)


def jpeg_scans(image: Image.Image) -> int:
    """The number of scans; 1 for other formats. Where one scan has the whole picture, only the header is read."""
    if image.format not in ("JPEG", "MPO") or not has_several_scans(_file(image)):
        return 1
    return max(2, count_scans(_file(image)))


def check_scans(name: str, scans: int, stored_pixels: int) -> None:
    """Refuse a JPEG that says the same thing thousands of times: each scan passes the whole picture."""
    if scans > 1 and scans * stored_pixels > SCAN_WORK:
        raise CaptionerError(
            f"{name}: a JPEG of {scans:,} scans, which takes too long to decode; save it again as a plain JPEG"
        )


def _decoder_bytes(image: Image.Image, stored_pixels: int, scans: int) -> int:
    width, height = image.size
    if image.format in ("JPEG", "MPO"):
        # libjpeg keeps the coefficients of a picture with several scans, 16 bits each, also where it decodes a draft.
        return 2 * int(getattr(image, "layers", 4)) * stored_pixels if scans > 1 else 0
    if image.format == "TIFF":
        return _tiff_buffer(image)
    return width * height * _DECODER_BYTES.get(image.format or "", 0)


def _tiff_buffer(image: Image.Image) -> int:
    """The part that libtiff decodes at a time, a strip or a tile. Its size is in the header and may be any number."""
    tags: Any = image.tag_v2  # type: ignore[attr-defined]

    def largest(name: str, default: int) -> int:
        value = tags.get(_TIFF_TAGS[name], default)
        numbers = value if isinstance(value, tuple) else (value,)
        return max((int(number) for number in numbers if isinstance(number, int)), default=default)

    width, height = largest("width", image.width), largest("height", min(largest("rows", image.height), image.height))
    return width * height * max(1, largest("samples", 1)) * -(-largest("bits", 8) // 8)


def _file(image: Any) -> IO[bytes]:
    file: IO[bytes] = image.fp
    return file
