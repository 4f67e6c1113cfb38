"""libtiff writes a line to stderr for every problem of a damaged TIFF file, beside the error that Pillow raises.

Pillow has no setting against it, so the library that Pillow has loaded is told to write nothing.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import PIL


@cache
def silence_libtiff() -> bool:
    """Whether libtiff was found and is silent now. False where Pillow has it built in, as on Windows."""
    import ctypes
    import ctypes.util  # imported here: it imports subprocess

    packages = Path(PIL.__file__).parent.parent
    bundled = [*packages.glob("pillow.libs/libtiff*"), *packages.glob("PIL/.dylibs/libtiff*")]
    names: list[str | None] = [*map(str, bundled)] or [ctypes.util.find_library("tiff")]
    for name in names:
        try:
            library = ctypes.CDLL(name)
            library.TIFFSetErrorHandler(None)
            library.TIFFSetWarningHandler(None)
        except (AttributeError, OSError, TypeError):
            return False
    return True
