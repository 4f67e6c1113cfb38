"""captioner: Show, Attend and Tell. Captions for pictures, and where the model attended for each word.

The names below are the public API. Everything else may change in a minor version.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captioner.caption import Caption, Failure, Word
    from captioner.captioning import Captioner
    from captioner.errors import CaptionerError, UsageError
    from captioner.options import SearchOptions

# onnxruntime sends usage data unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__version__ = "0.2.0"
__all__ = ["Caption", "Captioner", "CaptionerError", "Failure", "SearchOptions", "UsageError", "Word"]

_MODULES = {
    "Caption": "captioner.caption",
    "Captioner": "captioner.captioning",
    "CaptionerError": "captioner.errors",
    "Failure": "captioner.caption",
    "SearchOptions": "captioner.options",
    "UsageError": "captioner.errors",
    "Word": "captioner.caption",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `captioner --help` stays quick."""
    if name not in _MODULES:
        raise AttributeError(f"module 'captioner' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
