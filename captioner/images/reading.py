"""Reading a picture from any source: a path, bytes, an open file, a Pillow image, an array or a tensor."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from captioner.errors import CaptionerError, UsageError
from captioner.images.decoding import decoded, explained, frame_of, open_file, upright
from captioner.images.frame import Frame
from captioner.images.limits import LIMITS, Limits
from captioner.images.pixels import Pixels, image_from_array, squash


class Tensor(Protocol):
    """torch.Tensor, for type checkers; the run half doesn't import torch."""

    def detach(self) -> Any: ...
    def cpu(self) -> Any: ...
    def is_floating_point(self) -> bool: ...


ImageSource = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any] | Tensor

THUMBNAIL = 360  # pixels of the longer side
DRAFT = (
    1.5  # a large JPEG is decoded at a half, a quarter or an eighth, but no smaller than this times the model's size
)

_URL = re.compile(r"[a-z][a-z0-9+.-]+:/|data:image/", re.IGNORECASE)


@dataclass(frozen=True)
class Picture:
    """A picture that was read: its name, its frame, and a way to see it again.

    A picture from a file is opened again from its path. Of any other source a thumbnail is kept, or the full picture
    if the caller asked for it.
    """

    name: str
    frame: Frame
    path: Path | None = None
    image: Image.Image | None = field(default=None, repr=False, compare=False)
    limits: Limits = field(default=LIMITS, repr=False, compare=False)  # of the first reading; they hold for the next

    def open(self, *, min_side: int | None = None) -> Image.Image:
        """The upright RGB picture. A thumbnail is smaller than the frame, and so may be a JPEG with `min_side`."""
        if self.image is not None:
            return self.image
        if self.path is None:
            raise CaptionerError(f"{self.name}: the picture was not kept")
        return read_image(self.path, min_side=min_side, limits=self.limits)[0]


def read_image(
    source: ImageSource, *, min_side: int | None = None, limits: Limits = LIMITS
) -> tuple[Image.Image, Frame]:
    """An upright RGB image and its frame. For `min_side` see `decoded`."""
    with _reading(source, min_side, limits) as result:
        return result


def load_for_model(
    source: ImageSource, size: int, *, keep: bool = False, thumbnail: int = THUMBNAIL, limits: Limits = LIMITS
) -> tuple[Picture, Pixels]:
    """A picture and the model's pixels for it, (size, size, 3) uint8.

    `keep` keeps a picture that has no file; else its thumbnail is kept, with `thumbnail` pixels on the longer side.
    With 0 nothing is kept, and bytes are decoded exactly as the same file would be.
    """
    name, draft = source_name(source), math.ceil(DRAFT * size)
    if isinstance(source, (str, os.PathLike)):
        with _reading(source, draft, limits) as (image, frame):
            return Picture(name, frame, Path(source), limits=limits), squash(image, size)
    with _reading(source, None if keep else max(draft, thumbnail), limits) as (image, frame):
        pixels = squash(image, size)
        if not (keep or thumbnail):
            return Picture(name, frame), pixels
        copy = image.copy() if keep else _shrunk(image, thumbnail)  # the caller may change or close the source
        return Picture(name, frame, image=copy), pixels


def _shrunk(image: Image.Image, side: int) -> Image.Image:
    """A copy with at most `side` pixels on the longer side, made without a second picture of full size."""
    scale = side / max(image.size)
    if scale >= 1:
        return image.copy()
    size = max(1, round(scale * image.width)), max(1, round(scale * image.height))
    return image.resize(size, Image.Resampling.BICUBIC, reducing_gap=2.0)


@contextmanager
def _reading(source: ImageSource, min_side: int | None, limits: Limits) -> Iterator[tuple[Image.Image, Frame]]:
    """The upright image of any source. Its memory counts until the block ends."""
    name = source_name(source)
    with explained(name):
        if isinstance(source, (str, os.PathLike)):
            if is_url(name):
                raise UsageError(f"{name}: URLs are not opened; download the picture first and pass its path or bytes")
            with open_file(Path(source)) as file, decoded(file, name, min_side=min_side, limits=limits) as result:
                yield result
        elif (image := _decoded_source(source)) is not None:
            yield upright(image, frame_of(image, name, limits))
        else:
            with decoded(_buffer(source, name), name, min_side=min_side, limits=limits) as result:
                yield result


def _decoded_source(source: object) -> Image.Image | None:
    """The image of a source that is not an encoded picture. A Pillow image that was only opened gets decoded later."""
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, np.ndarray):
        return image_from_array(source)
    return _image_from_tensor(source) if _is_tensor(source) else None


def source_name(source: object) -> str:
    """What a picture is called in messages and outputs: its path, its file's name, or "image"."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source) if isinstance(os.fspath(source), str) else repr(source)
    name = getattr(source, "filename", None) or getattr(source, "name", None)
    return name if isinstance(name, str) else "image"


def is_url(name: str) -> bool:
    """Whether a name is an address such as https://…, which no path is."""
    return bool(_URL.match(name))


def _buffer(source: object, name: str) -> IO[bytes]:
    """The encoded picture of bytes or of an open file."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data: object = bytes(source)
    elif callable(getattr(source, "read", None)):
        data = source.read()  # type: ignore[attr-defined]
    else:
        raise UsageError(
            f"{type(source).__name__} is not a picture; pass a path, bytes, a file opened with 'rb', a Pillow image, "
            "a numpy array or a torch tensor, or a list of these"
        )
    if not isinstance(data, bytes):
        raise UsageError(f"{name}: the file was opened as text; open it with 'rb'")
    if not data:
        raise CaptionerError(f"{name}: the file is empty or was read to its end")
    return io.BytesIO(data)


def _is_tensor(source: object) -> bool:
    torch = sys.modules.get("torch")  # whoever has a tensor has imported torch
    return torch is not None and isinstance(source, torch.Tensor)


def _image_from_tensor(tensor: Any) -> Image.Image:
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.float()  # numpy has no bfloat16
    return image_from_array(tensor.numpy(), channels_first=True)
