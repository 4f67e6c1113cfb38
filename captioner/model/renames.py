"""Settings and tensors that have been renamed, with their current names.

Bundles and runs keep the names that they were saved with. These tables are applied where saved settings and weights
are read; no other module knows the old names.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

SETTINGS = {  # paths in a config or in the settings of a manifest: of version 0.1, and today
    "data.maximum_length": "data.max_length",
    "model.attention.place": "model.attention.attend",
    "model.context": "model.grid_encoder",
    "model.context_heads": "model.grid_encoder_heads",
    "model.context_layers": "model.grid_encoder_layers",
    "training.scst.maximum_length": "training.scst.max_length",
    "training.validation.beam": "training.validation.search.beam",
    "training.validation.length_power": "training.validation.search.length_power",
    "training.validation.maximum_length": "training.validation.search.max_length",
    "training.validation.repeat_penalty": "training.validation.search.repeat_penalty",
}
TENSORS = {  # the part of a network that tensors belong to: of version 0.1, and today
    "decoder.context.": "decoder.grid_encoder.",
}
Value = TypeVar("Value")


def current_setting(path: str) -> str:
    """The current path of a setting."""
    return SETTINGS.get(path, path)


def current_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a file, under their current names.

    Where a file has both the old and the new name, both stay. Validation then refuses the old one.
    """
    current: dict[str, Any] = deepcopy(dict(settings))
    for old, new in SETTINGS.items():
        old_section, old_name = _section(current, old, create=False)
        if old_section is None or old_name not in old_section:
            continue
        new_section, new_name = _section(current, new, create=True)
        if new_section is not None and new_name not in new_section:
            new_section[new_name] = old_section.pop(old_name)
    return current


def _section(settings: dict[str, Any], path: str, *, create: bool) -> tuple[dict[str, Any] | None, str]:
    """The section that a path leads to, None where there is none, and the last name of the path."""
    *names, last = path.split(".")
    section: Any = settings
    for name in names:
        if create and isinstance(section, dict):
            section.setdefault(name, {})
        section = section.get(name) if isinstance(section, dict) else None
    return (section if isinstance(section, dict) else None), last


def current_tensors(tensors: Mapping[str, Value]) -> dict[str, Value]:
    """Tensors from a file, under their current names. Names in a checkpoint have a prefix, such as `network.`."""
    return {_current_tensor(name): tensor for name, tensor in tensors.items()}


def _current_tensor(name: str) -> str:
    for old, new in TENSORS.items():
        name = name.replace(old, new)
    return name
