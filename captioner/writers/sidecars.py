"""Sidecar files: photo.txt beside photo.jpg."""

from __future__ import annotations

from pathlib import Path

from captioner.caption import Caption
from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically
from captioner.images.decoding import is_picture


class SidecarWriter:
    """Writes one text file per photo, with one line per caption."""

    def __init__(self) -> None:
        self._photos: dict[Path, str] = {}  # by sidecar

    def write(self, name: str, caption: Caption) -> None:
        """Replaces an older sidecar, but never a picture and never the sidecar of another photo of this run."""
        path = sidecar_path(name)
        if path in self._photos:
            raise CaptionerError(
                f"{name}: its sidecar {path} already belongs to {self._photos[path]}; rename one of the two"
            )
        if is_picture(path):
            raise CaptionerError(f"{name}: its sidecar {path} is a picture and is not replaced; rename it")
        self._photos[path] = name
        try:
            write_atomically(path, "".join(f"{one.text}\n" for one in (caption, *caption.alternatives)))
        except OSError as error:
            raise CaptionerError(f"{path}: cannot be written ({error.strerror})") from None


def sidecar_path(name: str) -> Path:
    return Path(name).with_suffix(".txt")


def has_sidecar(name: str) -> bool:
    """Whether the photo has a sidecar. A photo that is itself named .txt has none."""
    path = sidecar_path(name)
    return path.is_file() and path != Path(name)
