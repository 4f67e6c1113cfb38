"""Sidecar files: photo.txt beside photo.jpg."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captioner.errors import CaptionerError, UsageError
from captioner.files.atomic import sweep, write_atomically
from captioner.files.existing import Existing, merged
from captioner.images.decoding import is_picture


class SidecarWriter:
    """Writes one text file per photo, with one line per caption."""

    change = "--existing overwrite, append or prepend changes it"

    def __init__(self, *, extension: str = ".txt", existing: Existing = "keep") -> None:
        """`existing` decides what happens to a sidecar that was there before."""
        self.extension = _checked(extension)
        self.existing = existing
        self._photos: dict[Path, str] = {}  # by sidecar
        self._swept: set[Path] = set()  # folders without files of writers that were killed

    @property
    def adds_lines(self) -> bool:
        """Whether existing sidecars get more lines."""
        return self.existing in ("append", "prepend")

    def write(self, name: str, lines: Sequence[str]) -> Path | None:
        """Write the sidecar of a photo. Returns its path if an existing one was kept.

        A picture is never replaced, nor is the sidecar of another photo of this run.
        """
        path = self.path(name)
        if path in self._photos:
            raise CaptionerError(
                f"{name}: its sidecar {path} already belongs to {self._photos[path]}; rename one of the two"
            )
        if is_picture(path):
            raise CaptionerError(f"{name}: its sidecar {path} is a picture and is not replaced; rename it")
        self._photos[path] = name
        if path.parent not in self._swept:
            self._swept.add(path.parent)
            sweep(path.parent)
        try:
            content = merged(path, "".join(f"{line}\n" for line in lines), self.existing)
            if content is not None:
                write_atomically(path, content.encode("utf-8", errors="surrogateescape"))
        except OSError as error:
            raise CaptionerError(f"{path}: cannot be written ({error.strerror or error})") from None
        return path if content is None and self.existing == "keep" else None

    def path(self, name: str) -> Path:
        return Path(name).with_suffix(self.extension)

    def has(self, name: str) -> bool:
        """Whether the photo has a sidecar. A photo that is itself named like one has none."""
        path = self.path(name)
        try:
            return path.is_file() and path != Path(name)
        except OSError:  # a name that is too long; writing reports it
            return False


def _checked(extension: str) -> str:
    """The extension with its dot."""
    dotted = extension if extension.startswith(".") else f".{extension}"
    if len(dotted) < 2 or set("/\\\0") & set(dotted) or dotted.endswith("."):
        raise UsageError(
            f"--sidecar-extension {extension!r} is not the ending of a file name, such as .txt or .caption"
        )
    return dotted
