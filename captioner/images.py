"""Reading pictures as people have them, and the Frame that maps grid cells to original pixels.

Every picture is turned upright, put on white where it is transparent, and squashed whole to the
model's square, so that no part is never seen and a cell of the grid is a rectangle of the original.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from captioner.errors import CaptionerError

Pixels = NDArray[np.uint8]  # (height, width, 3)
ImageSource = Union[str, Path, Image.Image, NDArray[Any]]

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")
PIXEL_LIMIT = 200_000_000  # about 14,000 x 14,000; refuses decompression bombs before they are decoded
_ORIENTATION = 0x0112  # the EXIF tag


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
    """A picture, where it came from and its frame; the model's pixels are made by `squash`."""

    name: str
    frame: Frame
    path: Path | None = None
    image: Image.Image | None = field(
        default=None, repr=False
    )  # kept only where there is no file to read again

    def open(self, pixel_limit: int = PIXEL_LIMIT) -> Image.Image:
        """The upright RGB picture at full size."""
        if self.image is not None:
            return self.image
        assert self.path is not None
        return read(self.path, pixel_limit=pixel_limit)[0]


def read(
    source: ImageSource, *, least: int | None = None, pixel_limit: int = PIXEL_LIMIT
) -> tuple[Image.Image, Frame]:
    """An upright RGB image and its frame.

    With `least`, a huge JPEG may be decoded smaller (never under `least` pixels a side): the frame
    keeps the size of the original.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's own bomb warning; our limit is checked below
            return _read(source, least, pixel_limit)
    except CaptionerError:
        raise
    except UnidentifiedImageError:
        raise CaptionerError(f"{source}: not a picture that can be read") from None
    except FileNotFoundError:
        raise CaptionerError(f"{source}: no such file") from None
    except IsADirectoryError:
        raise CaptionerError(f"{source}: a folder, not a picture") from None
    except Exception as error:  # Pillow's decoders raise nearly anything on broken data
        raise CaptionerError(f"{source}: cannot be read ({type(error).__name__}: {error})") from error


def _read(source: ImageSource, least: int | None, pixel_limit: int) -> tuple[Image.Image, Frame]:
    if isinstance(source, np.ndarray):
        image: Image.Image = _from_array(source)
    elif isinstance(source, Image.Image):
        image = source
    else:
        path = Path(source)
        if path.is_file() and path.stat().st_size == 0:
            raise CaptionerError(f"{path}: the file is empty")
        # Pillow would raise its own error at twice its own limit; ours is the only one that counts.
        Image.MAX_IMAGE_PIXELS = None
        image = Image.open(path)
    try:
        width, height = image.size
        if width * height > pixel_limit:
            raise CaptionerError(
                f"{getattr(image, 'filename', None) or 'the picture'}: {width}x{height} is more than the limit of "
                f"{pixel_limit:,} pixels; raise it with --pixel-limit if you trust the file"
            )
        if width == 0 or height == 0:
            raise CaptionerError("the picture has no pixels")
        orientation = int(image.getexif().get(_ORIENTATION, 1) or 1)
        if least is not None:
            image.draft("RGB", (least, least))  # JPEG only: decodes at 1/2, 1/4 or 1/8 where that is enough
        upright = ImageOps.exif_transpose(_to_rgb(image)) if orientation != 1 else _to_rgb(image)
    finally:
        if not isinstance(source, Image.Image):
            image.close()
    if orientation in (5, 6, 7, 8):
        width, height = height, width
    return upright, Frame(width, height, orientation)


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        raise CaptionerError(
            f"an array of shape {array.shape} is not a picture; give (height, width[, 1, 3 or 4])"
        )
    if array.dtype != np.uint8:
        if np.issubdtype(array.dtype, np.floating):
            if array.size and (np.nanmin(array) < 0 or np.nanmax(array) > 1):
                raise CaptionerError("an array of floats must lie in 0..1; give uint8 for 0..255")
            array = np.nan_to_num(array) * 255 + 0.5
        elif array.dtype == np.uint16:
            array = array >> 8
        array = array.astype(np.uint8)
    return Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _to_rgb(image: Image.Image) -> Image.Image:
    """RGB with EXIF kept; alpha on white; 16-bit and float grey scaled to 8 bits rather than clipped."""
    exif = image.getexif()
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.float32)
        if image.mode == "F":
            scale = 255.0 / float(grey.max()) if grey.max() > 0 else 1.0
        else:
            scale = 1 / 257 if grey.max() > 255 else 1.0
        rgb = Image.fromarray(np.clip(grey * scale + 0.5, 0, 255).astype(np.uint8)).convert("RGB")
    elif image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        rgb = Image.new("RGB", rgba.size, (255, 255, 255))
        rgb.paste(rgba, mask=rgba.getchannel("A"))
    else:
        rgb = image.convert("RGB") if image.mode != "RGB" else image.copy()
    if _ORIENTATION in exif:
        kept = Image.Exif()
        kept[_ORIENTATION] = exif[_ORIENTATION]
        rgb.info["exif"] = kept.tobytes()
        rgb.getexif().load(kept.tobytes())
    return rgb


def squash(image: Image.Image, size: int) -> Pixels:
    """The whole picture as a (size, size, 3) square: the transform of training and running alike."""
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(image, dtype=np.uint8)


TRANSFORM = "upright, rgb on white, squashed, bicubic (reducing gap 3)"  # recorded with cached features


def load(
    source: ImageSource, size: int, *, name: str | None = None, pixel_limit: int = PIXEL_LIMIT
) -> tuple[Picture, Pixels]:
    """A picture and the model's pixels for it, (size, size, 3) uint8."""
    image, frame = read(source, least=2 * size, pixel_limit=pixel_limit)
    path = Path(source) if isinstance(source, (str, Path)) else None
    kept = None if path else image
    return Picture(name or (str(path) if path else "image"), frame, path, kept), squash(image, size)


def from_bytes(
    data: bytes, size: int, *, name: str = "image", pixel_limit: int = PIXEL_LIMIT
) -> tuple[Picture, Pixels]:
    """As `load`, for an encoded picture in memory."""
    try:
        image = Image.open(io.BytesIO(data))
    except Exception:
        raise CaptionerError(f"{name}: not a picture that can be read") from None
    return load(image, size, name=name, pixel_limit=pixel_limit)
