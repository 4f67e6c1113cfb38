"""torchvision, importable also beside a torch its compiled operators were not built for.

The torchvision wheel on PyPI is built for CUDA. Beside a CPU-only torch its extension can't be loaded, and
`import torchvision` then stops at "operator torchvision::nms does not exist", though backbones and
transforms need none of the compiled operators. Here the operators which the import asks for are declared
(name and schema, no kernel) and the import is tried again. Where the extension loads, nothing is declared.
Detection operators still refuse to run, with torchvision's own message.

Everywhere in this package: `from captioner.workarounds.torchvision_import import torchvision`.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import torch

# What torchvision's Python side attaches shape functions to while it is imported.
SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")

# torch forgets an operator when the library that declared it is collected: kept for the life of the process.
_declared: dict[str, torch.library.Library] = {}


def load_torchvision() -> Any:
    """Import torchvision, declaring such operators as the import turns out to miss."""
    while True:
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            found = _MISSING.search(str(error))
            if found is None or found[1] not in SCHEMAS or found[1] in _declared:
                raise
            _declare(found[1])
            _forget_partial_import()


def declared_operators() -> list[str]:
    """The operators that were missing and are only declared; empty where the compiled ones are there."""
    return list(_declared)


def _declare(operator: str) -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(SCHEMAS[operator])  # type: ignore[no-untyped-call]
    _declared[operator] = library


def _forget_partial_import() -> None:
    """Submodules that outlived a failed import would not be attached to the package at the next one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


torchvision: Any = load_torchvision()
