"""XMP sidecars: photo.xmp beside photo.nef, for raw files and for photos that must not be changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically
from captioner.files.existing import is_occupied
from captioner.writers.photo_metadata import changes, description, edited, read_fields

EMPTY = (
    b'<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?>\n'
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>'
    b'</x:xmpmeta>\n<?xpacket end="w"?>'
)


class XmpSidecarWriter:
    """Writes captions into XMP files. What another program wrote there is kept.

    An existing description is kept too, unless `overwrite` is given.
    """

    adds_lines = False
    change = "--overwrite replaces it"

    def __init__(self, *, overwrite: bool = False) -> None:
        self.overwrite = overwrite
        self._photos: dict[Path, str] = {}  # by sidecar

    def write(self, name: str, lines: Sequence[str]) -> Path | None:
        """Write the first line. Returns the sidecar's path if it has a description, which was kept."""
        path = Path(name).with_suffix(".xmp")
        if path in self._photos:
            raise CaptionerError(f"{name}: its sidecar {path} already belongs to {self._photos[path]}")
        self._photos[path] = name
        try:
            old = path.read_bytes() if is_occupied(path) else EMPTY
            fields = read_fields(old)
            if not self.overwrite and description(fields) is not None:
                return path
            new = {**changes(fields, lines[0], overwrite=self.overwrite), "exif": {}, "iptc": {}}
            data = edited(old, new)
            after = read_fields(data)["xmp"]
            if any(after.get(key) != value for key, value in fields["xmp"].items() if key not in new["xmp"]):
                raise CaptionerError("writing would lose one of its fields")
            write_atomically(path, data)
        except OSError as error:
            raise CaptionerError(f"{path}: cannot be written ({error.strerror})") from None
        except CaptionerError as error:
            raise CaptionerError(f"{path}: {error}; it is unchanged") from None
        return None

    def has(self, name: str) -> bool:
        """Whether the photo has a sidecar with a description."""
        path = Path(name).with_suffix(".xmp")
        try:
            return is_occupied(path) and description(read_fields(path.read_bytes())) is not None
        except (OSError, CaptionerError):
            return False
