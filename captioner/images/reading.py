"""Reading pictures as people have them, and the Frame that maps grid cells to original pixels.

Every picture is turned upright, put on white where it is transparent, and squashed whole to the
model's square, so that no part is never seen and a cell of the grid is a rectangle of the original.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from captioner.errors import CaptionerError

Pixels = NDArray[np.uint8]  # (height, width, 3)
ImageSource = str | Path | Image.Image | NDArray[Any]

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
# What is opened at all, for some of Pillow's formats start other programs. The common ones come first: the others
# make Pillow load all its plugins, and not every build of it has them.
COMMON, OTHERS = ("JPEG", "PNG", "GIF", "BMP", "PPM"), ("WEBP", "TIFF", "AVIF", "DIB")
PIXEL_LIMIT = 200_000_000  # about 14,000 x 14,000; refuses decompression bombs before they are decoded
TRANSFORM = "upright, rgb on white, squashed, bicubic (reducing gap 3)"  # recorded with cached features

_ORIENTATION = 0x0112  # the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Frame:
    """The way from a grid over the model's square back to the upright picture."""

    width: int  # of the upright picture
    height: int
    orientation: int = 1  # EXIF orientation as stored in the file: 5..8 swap the sides

    def cell(self, row: int, col: int, rows: int, cols: int) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of a grid cell, in pixels of the upright picture."""
        return (
            col * self.width / cols,
            row * self.height / rows,
            (col + 1) * self.width / cols,
            (row + 1) * self.height / rows,
        )

    def place(self, x: float, y: float, rows: int, cols: int) -> tuple[int, int]:
        """Row and column of the cell that holds a pixel of the upright picture."""
        row = min(max(int(y * rows / self.height), 0), rows - 1)
        col = min(max(int(x * cols / self.width), 0), cols - 1)
        return row, col


@dataclass(frozen=True)
class Picture:
    """A picture, where it came from and its frame; the model's pixels are made by `squash`.

    What is needed to see it again is kept in memory only where there is no file.
    """

    name: str
    frame: Frame
    path: Path | None = None
    image: Image.Image | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False)  # an encoded picture

    def open(self, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
        """The upright RGB picture at full size."""
        if self.image is not None:
            return self.image
        if self.data is not None:
            return _decode(io.BytesIO(self.data), self.name, None, pixel_limit)[0]
        if self.path is None:
            raise CaptionerError(f"{self.name}: the picture was not kept")
        return read(self.path, pixel_limit=pixel_limit)[0]


def read(source: ImageSource, *, least: int | None = None, pixel_limit: int = PIXEL_LIMIT) -> tuple[Image.Image, Frame]:
    """An upright RGB image and its frame.

    With `least`, a huge JPEG file may be decoded smaller (never under `least` pixels a side): the frame
    keeps the size of the original.
    """
    if isinstance(source, np.ndarray):
        source = _from_array(source)
    if isinstance(source, Image.Image):
        name = getattr(source, "filename", None) or "the picture"
        with _explained(name):
            return _upright(source, name, pixel_limit)
    path = Path(source)
    with _explained(str(source)):
        if path.is_dir():
            raise CaptionerError(f"{source}: a folder, not a picture")
        if path.stat().st_size == 0:
            raise CaptionerError(f"{source}: the file is empty")
        with path.open("rb") as file:
            return _decode(file, str(source), least, pixel_limit)


def load(
    source: ImageSource, size: int, *, name: str | None = None, pixel_limit: int = PIXEL_LIMIT
) -> tuple[Picture, Pixels]:
    """A picture and the model's pixels for it, (size, size, 3) uint8."""
    image, frame = read(source, least=2 * size, pixel_limit=pixel_limit)
    if isinstance(source, (str, Path)):
        return Picture(name or str(source), frame, Path(source)), squash(image, size)
    return Picture(name or "image", frame, image=image), squash(image, size)


def from_bytes(
    data: bytes, size: int, *, name: str = "image", pixel_limit: int = PIXEL_LIMIT
) -> tuple[Picture, Pixels]:
    """As `load`, for an encoded picture in memory."""
    if not data:
        raise CaptionerError(f"{name}: the file is empty")
    image, frame = _decode(io.BytesIO(data), name, 2 * size, pixel_limit)
    return Picture(name, frame, data=data), squash(image, size)


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture does; whether all of it can be read is another matter."""
    try:
        if not path.is_file():  # a pipe would be read empty, or waited for
            return False
        with path.open("rb") as file, _header(file):
            return True
    except Exception:  # Pillow's openers raise nearly anything
        return False


def squash(image: Image.Image, size: int) -> Pixels:
    """The whole picture as a (size, size, 3) square: the transform of training and running alike."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image, dtype=np.uint8)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn what Pillow and the system raise into a sentence."""
    try:
        yield
    except CaptionerError:
        raise
    except UnidentifiedImageError:
        raise CaptionerError(f"{name}: not a picture that can be read") from None
    except FileNotFoundError:
        raise CaptionerError(f"{name}: no such file") from None
    except PermissionError:
        raise CaptionerError(f"{name}: not allowed to read it") from None
    except Exception as error:  # Pillow's decoders raise nearly anything on broken data
        raise CaptionerError(f"{name}: cannot be read ({type(error).__name__}: {error})") from error


_opening = threading.Lock()


def _decode(file: BinaryIO, name: str, least: int | None, pixel_limit: int) -> tuple[Image.Image, Frame]:
    with _explained(name), _header(file) as image:
        return _upright(image, name, pixel_limit, least)


def _header(file: BinaryIO) -> Image.Image:
    # Pillow's own limit is one for the whole program: it is lifted only while a header is read.
    with _opening:
        kept, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return _open(file)
        finally:
            Image.MAX_IMAGE_PIXELS = kept


def _open(file: BinaryIO) -> Image.Image:
    try:
        return Image.open(file, formats=COMMON)
    except UnidentifiedImageError:
        Image.init()
        file.seek(0)
        return Image.open(file, formats=[name for name in OTHERS if name in Image.OPEN])


def _upright(image: Image.Image, name: str, pixel_limit: int, least: int | None = None) -> tuple[Image.Image, Frame]:
    width, height = image.size
    if width * height > pixel_limit:
        raise CaptionerError(
            f"{name}: {width}x{height} is more than the limit of {pixel_limit:,} pixels; "
            "raise it with --pixel-limit if you trust the file"
        )
    if width == 0 or height == 0:
        raise CaptionerError(f"{name}: the picture has no pixels")
    orientation = _orientation(image)
    if least is not None:
        image.draft(None, (least, least))  # JPEG only: decodes at 1/2, 1/4 or 1/8 where that is enough
    rgb = _to_rgb(image)
    if orientation in _TURNS:
        rgb = rgb.transpose(_TURNS[orientation])
    if orientation >= 5:
        width, height = height, width
    return rgb, Frame(width, height, orientation)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 where there is none or it makes no sense."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # broken EXIF is common, and no reason to refuse the picture
        return 1
    return value if isinstance(value, int) and value in _TURNS else 1


def _to_rgb(image: Image.Image) -> Image.Image:
    """RGB; alpha on white; 16-bit and float grey scaled to 8 bits rather than clipped."""
    if image.mode == "RGB" and "transparency" not in image.info:
        image.load()
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bits(np.asarray(image))).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        rgb = Image.new("RGB", rgba.size, (255, 255, 255))
        rgb.paste(rgba, mask=rgba.getchannel("A"))
        return rgb
    return image.convert("RGB")


def _to_8_bits(grey: NDArray[Any]) -> NDArray[np.uint8]:
    """Grey of any depth as bytes. The depth is not always recorded, so it is told from the largest value."""
    values = np.nan_to_num(grey.astype(np.float32))
    most = float(values.max())
    if np.issubdtype(grey.dtype, np.floating):
        scale = 255.0 if most <= 1 else 1.0 if most <= 255 else 255 / most
    else:
        scale = 1.0 if most <= 255 else 1 / 257 if most <= 65535 else 255 / most
    bytes_: NDArray[np.uint8] = np.clip(values * scale + 0.5, 0, 255).astype(np.uint8)
    return bytes_


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or not array.size:
        raise CaptionerError(f"an array of shape {array.shape} is not a picture; give (height, width[, 1, 3 or 4])")
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    elif np.issubdtype(array.dtype, np.floating):
        if not (array.min() >= 0 and array.max() <= 1):  # never true of an array with NaN
            raise CaptionerError("an array of floats must lie in 0..1; give uint8 for 0..255")
        array = (array * 255 + 0.5).astype(np.uint8)
    elif array.dtype == np.uint16:
        array = (array // 257).astype(np.uint8)
    elif array.dtype != np.uint8:
        if not np.issubdtype(array.dtype, np.integer) or array.min() < 0 or array.max() > 255:
            raise CaptionerError(f"an array of {array.dtype} must hold whole numbers in 0..255")
        array = array.astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(array))
