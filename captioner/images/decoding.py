"""Decoding picture files, the same way for captioning, checking data and training.

The accepted formats, the limits and the EXIF orientation are applied here and nowhere else.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from PIL import Image, ImageSequence, UnidentifiedImageError

from captioner.errors import CaptionerError
from captioner.files import zip_paths
from captioner.images.decoding_cost import check_scans, decoding_bytes, jpeg_scans, webp_bytes, webp_canvas
from captioner.images.file_kinds import HEADER, file_kind, kind_of
from captioner.images.frame import ORIENTATIONS, Frame
from captioner.images.limits import LIMITS, Limits, TimedFile, memory_budget
from captioner.images.pixels import to_rgb
from captioner.images.raw_previews import open_preview
from captioner.installation import install_command
from captioner.workarounds.libtiff_messages import silence_libtiff
from captioner.workarounds.pillow_warnings import without_pillow_warnings

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")

# No other format is opened, because some of Pillow's plugins start other programs. The common formats are tried
# first: for the others Pillow loads all its plugins, and not every build of Pillow has them.
_COMMON, _OTHERS = ("JPEG", "PNG", "GIF", "BMP", "PPM"), ("WEBP", "TIFF", "AVIF", "DIB")
logging.getLogger("PIL").addHandler(logging.NullHandler())  # else its errors go to standard error, beside our sentence
_ORIENTATION_TAG = 0x0112
_DNG_TAG = 0xC612


@contextmanager
def decoded(
    file: IO[bytes], name: str, *, min_side: int | None = None, limits: Limits = LIMITS
) -> Iterator[tuple[Image.Image, Frame]]:
    """An upright RGB image and its frame. Inside the block, its memory counts among that of all pictures.

    With `min_side`, a large JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, but no side gets shorter than
    `min_side` pixels. The frame keeps the size of the original.
    """
    with explained(name), _without_pillow_limit(), ExitStack() as stack:
        timed = TimedFile(file, name, limits)
        canvas = webp_canvas(file) if _is_webp(file) else None
        if canvas is not None:  # Pillow allocates it when it opens the file
            limits.check_pixels(name, *canvas)
            limits.check_memory(name, *canvas, webp_bytes(*canvas))
            timed.allow(stack.enter_context(memory_budget.reserve(webp_bytes(*canvas), limits)))
        image = stack.enter_context(_open(cast("IO[bytes]", timed), name))
        width, height = image.size
        limits.check_pixels(name, width, height)
        if min_side is not None:
            image.draft(None, (min_side, min_side))  # JPEG only
        scans = jpeg_scans(image)
        check_scans(name, scans, width * height)
        if canvas is None:
            needed = decoding_bytes(image, width * height, scans=scans, turned=_may_be_turned(image))
            limits.check_memory(name, width, height, needed)
            timed.allow(stack.enter_context(memory_budget.reserve(needed, limits)))
        yield upright(image, Frame.of_stored(width, height, _orientation(image)))


def upright(image: Image.Image, frame: Frame) -> tuple[Image.Image, Frame]:
    """The RGB image, turned as its frame says."""
    rgb = to_rgb(image)
    transposition = ORIENTATIONS[frame.orientation].pillow
    return (rgb if transposition is None else rgb.transpose(transposition)), frame


def stored_frames(file: IO[bytes], name: str, *, limits: Limits = LIMITS) -> Iterator[Image.Image]:
    """Every frame of a picture as it is stored, neither turned nor converted. Each counts among the memory in turn."""
    with explained(name), _without_pillow_limit():
        timed = TimedFile(file, name, limits)
        with _open(cast("IO[bytes]", timed), name) as image:
            for frame in ImageSequence.Iterator(image):
                width, height = frame.size
                limits.check_pixels(name, width, height)
                needed = decoding_bytes(frame, width * height, scans=jpeg_scans(frame), turned=False)
                limits.check_memory(name, width, height, needed)
                with memory_budget.reserve(needed, limits) as waited:
                    timed.allow(waited)
                    yield frame


def inspect(path: Path, *, limits: Limits = LIMITS) -> Frame:
    """The frame of a picture file, from its header. The pixels are not decoded and may still be damaged."""
    name = str(path)
    with explained(name), _without_pillow_limit(), open_file(path) as file:
        canvas = webp_canvas(file) if _is_webp(file) else None
        if canvas is not None:
            limits.check_pixels(name, *canvas)
            limits.check_memory(name, *canvas, webp_bytes(*canvas))
        with _open(cast("IO[bytes]", TimedFile(file, name, limits)), name) as image:
            return frame_of(image, name, limits)


def is_picture(path: Path) -> bool:
    """Whether a file has the header of a picture, also of one whose reader is not installed.

    The pixel limit does not count.
    """
    if file_kind(path).group in ("HEIC", "raw"):
        return True
    try:
        with without_pillow_warnings(), _without_pillow_limit(), open_file(path) as file, _open(file, path.name):
            return True
    except Exception:  # Pillow's parsers raise nearly any exception on other files
        return False


def open_file(path: Path) -> IO[bytes]:
    """A picture file opened for reading; a folder, an empty file or a pipe is refused with a sentence."""
    if zip_paths.is_folder(path):
        raise CaptionerError(f"{path}: {'an archive' if path.is_file() else 'a folder'}, not a picture")
    if zip_paths.size_of(path) == 0 and zip_paths.is_file(path):
        raise CaptionerError(f"{path}: the file is empty")
    if not zip_paths.is_file(path):  # reading a pipe would wait for a writer
        raise CaptionerError(f"{path}: not a regular file")
    return zip_paths.open_binary(path)


def frame_of(image: Image.Image, name: str, limits: Limits) -> Frame:
    """The frame of an opened image; one with too many pixels or none is refused."""
    limits.check_pixels(name, *image.size)
    return Frame.of_stored(*image.size, _orientation(image))


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn exceptions of Pillow and of the system into a CaptionerError with a sentence. Hide Pillow's warnings."""
    try:
        with without_pillow_warnings():
            yield
    except CaptionerError:
        raise
    except UnidentifiedImageError:
        raise CaptionerError(f"{name}: not a picture that can be read") from None
    except FileNotFoundError:
        raise CaptionerError(f"{name}: no such file") from None
    except PermissionError:
        raise CaptionerError(f"{name}: no permission to read it") from None
    except Exception as error:  # Pillow's decoders raise nearly any exception on damaged data
        raise CaptionerError(f"{name}: cannot be read ({type(error).__name__}: {error})") from error


class _PillowLimit:
    """Pillow's own pixel limit is a global variable. It is lifted as long as any thread reads a picture here."""

    def __init__(self) -> None:
        self._lock, self._readers, self._limit = threading.Lock(), 0, Image.MAX_IMAGE_PIXELS

    def forget(self) -> None:
        """Start anew: a forked process has none of the threads that were reading."""
        if self._readers:
            Image.MAX_IMAGE_PIXELS = self._limit
        self._lock, self._readers = threading.Lock(), 0

    def lift(self) -> None:
        with self._lock:
            if not self._readers:
                self._limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            self._readers += 1

    def restore(self) -> None:
        with self._lock:
            self._readers -= 1
            if not self._readers:
                Image.MAX_IMAGE_PIXELS = self._limit


_pillow_limit = _PillowLimit()
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_pillow_limit.forget)


@contextmanager
def _without_pillow_limit() -> Iterator[None]:
    _pillow_limit.lift()
    try:
        yield
    finally:
        _pillow_limit.restore()


def _is_webp(file: IO[bytes]) -> bool:
    header = file.read(16)
    file.seek(0)
    return header[:4] == b"RIFF" and header[8:12] == b"WEBP"


def _open(file: IO[bytes], name: str) -> Image.Image:
    """Parse the header. What it claims is not yet checked."""
    kind = kind_of(file.read(HEADER), name)
    file.seek(0)
    if kind.group == "HEIC":
        return _open_heic(file, name)
    if kind.group == "raw":
        return _open_raw(file, name, kind.format)
    if kind.group in ("drawing", "video"):
        raise CaptionerError(f"{name}: {kind.format}, not a photo; convert it to JPEG or PNG first")
    try:
        return Image.open(file, formats=_COMMON)
    except UnidentifiedImageError:
        Image.init()
        silence_libtiff()
        file.seek(0)
        image = Image.open(file, formats=[name for name in _OTHERS if name in Image.OPEN])
    if image.format == "TIFF" and _DNG_TAG in image.tag_v2:  # type: ignore[attr-defined]
        return _open_raw(file, name, "DNG")
    return image


def _open_heic(file: IO[bytes], name: str) -> Image.Image:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise CaptionerError(f"{name}: HEIC needs pillow-heif: {install_command('heic')}") from None
    register_heif_opener()
    return Image.open(file, formats=("HEIF",))


def _open_raw(file: IO[bytes], name: str, format: str) -> Image.Image:
    """The preview that the camera stored. The sensor's own data is not developed."""
    preview = open_preview(file)
    if preview is None:
        raise CaptionerError(
            f"{name}: a raw file ({format}) without a preview that can be read; convert it to JPEG or TIFF first, "
            "for example with darktable or RawTherapee"
        )
    return preview


def _may_be_turned(image: Image.Image) -> bool:
    """Whether the orientation makes one more copy. For a PNG, Pillow would have to decode it to find out."""
    return "exif" in image.info if image.format == "PNG" else _orientation(image) != 1


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 if there is none or it is invalid."""
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # damaged EXIF is common, and no reason to refuse the picture
        return 1
    return value if isinstance(value, int) and value in ORIENTATIONS else 1
