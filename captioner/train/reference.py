"""The page of all settings, from the settings' own descriptions: python -m captioner.train.reference."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from captioner.train.config import Config, fields

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
_OPENING = """# All settings of a config

Made from the settings' own descriptions by `python -m captioner.train.reference`; a test holds the two together.
[Training](training.md) tells which of them matter when. A key in a file, such as

```yaml
training:
  optimizer: {learning_rate: 0.0005}
```

is `--set training.optimizer.learning_rate=0.0005` on the command line; `N` is a place in a list, from 0 on. Where the
default is *needed*, a config must say it; *none* is `null` in a file.
"""
_NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false", Path: "path"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def reference() -> str:
    """The page as Markdown."""
    lines = [_OPENING]
    section = None
    for path, field in fields():
        top = path.partition(".")[0] if "." in path else ""
        if top != section:
            section = top
            about = Config.model_fields[top].annotation.__doc__ if top else Config.__doc__
            lines += [f"\n## {top or 'The run'}\n", f"{_first(about)}\n", "| setting | default | allowed | meaning |"]
            lines += ["|---|---|---|---|"]
        lines.append(f"| `{path}` | {_default(field)} | {_allowed(field)} | {field.description} |")
    return "\n".join(lines) + "\n"


def _first(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "*needed*"
    if field.default is None:
        return "*none*"
    if isinstance(field.default, tuple):
        return f"[{', '.join(map(str, field.default))}]"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _allowed(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(m, name)}" for m in field.metadata for name, sign in _BOUNDS.items() if hasattr(m, name)
    ]
    return ", ".join([_kind(field.annotation), *bounds])


def _kind(annotation: Any) -> str:
    """A type in words."""
    arguments = [each for each in get_args(annotation) if each not in (type(None), Ellipsis)]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if get_origin(annotation) is tuple:
        return f"list of {_kind(arguments[0])}"
    if get_origin(annotation) in (Union, types.UnionType):
        return f"{_kind(arguments[0])} or none"
    return _NAMES[annotation]


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
