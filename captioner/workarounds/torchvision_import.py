"""torchvision beside a torch that its compiled operators were not built for.

The torchvision wheel on PyPI is built for CUDA. Beside a CPU-only torch its extension can't be loaded, and
`import torchvision` fails with "operator torchvision::nms does not exist", although backbones and transforms need no
compiled operator. This module declares the operators that the import asks for (name and schema, no code) and imports
again. Where the extension loads, it declares nothing. Detection operators still refuse to run, with torchvision's own
message.

Everywhere in this package: `from captioner.workarounds.torchvision_import import torchvision`.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import torch

# Operators that torchvision's Python code attaches shape functions to during its import.
SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")

# torch removes an operator when the library that declared it is garbage-collected, so the libraries are stored here.
_declared: dict[str, torch.library.Library] = {}


def load_torchvision() -> Any:
    """Import torchvision, and declare the operators that the import turns out to need."""
    while True:
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None or missing[1] not in SCHEMAS or missing[1] in _declared:
                raise
            _declare(missing[1])
            _forget_partial_import()


def _declare(operator: str) -> None:
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(SCHEMAS[operator])  # type: ignore[no-untyped-call]
    _declared[operator] = library


def _forget_partial_import() -> None:
    """Remove the submodules of a failed import; the next import would not attach them to the package."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


torchvision: Any = load_torchvision()
