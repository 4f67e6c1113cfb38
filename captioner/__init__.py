"""captioner: Show, Attend and Tell. Captions for pictures, and where the model looked for each word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.caption import Caption, Word
    from captioner.captioning import Captioner
    from captioner.errors import CaptionerError

__version__ = "0.2.0"
__all__ = ["Caption", "Captioner", "CaptionerError", "Word"]

_HOME = {
    "Caption": "captioner.caption",
    "Captioner": "captioner.captioning",
    "CaptionerError": "captioner.errors",
    "Word": "captioner.caption",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first asked for: `captioner --help` stays quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'captioner' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOME[name]), name)
