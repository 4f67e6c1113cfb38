"""The packages stand in one order, and imports only go backwards in it, those inside functions included."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What comes earlier never imports what comes later. docs/architecture.md explains the order.
ORDER = (
    "errors",
    "terminal",
    "installation",
    "files",
    "workarounds",
    "progress",
    "text",
    "images",
    "options",
    "caption",
    "bundle",
    "model",
    "inference",
    "captioning",
    "data",
    "metrics",
    "evidence",
    "overlay",
    "writers",
    "web",
    "train",
    "export",
    "evaluation",
    "scale",
    "serve",
    "cli",
)

# (importing module, imported room): the reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("captioner.caption", "overlay"): "a notebook calls Caption._repr_html_, which draws the attention maps",
    ("captioner.train.features", "export"): "the frozen trunk is exported once, because onnxruntime encodes faster",
}


def modules() -> dict[str, ast.Module]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path in sorted((ROOT / "captioner").rglob("*.py"))
    }


def room(module: str) -> str:
    """The package or top-level module that a module belongs to: the name after `captioner.`."""
    return module.split(".")[1]


def imported_rooms(tree: ast.Module) -> set[str]:
    rooms = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == "captioner":
                rooms |= {alias.name for alias in node.names}
            elif node.module.startswith("captioner."):
                rooms.add(room(node.module))
        elif isinstance(node, ast.Import):
            rooms |= {room(alias.name) for alias in node.names if alias.name.startswith("captioner.")}
    return rooms & set(ORDER)


MODULES = {name: tree for name, tree in modules().items() if name not in ("captioner", "captioner.__main__")}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_nothing_that_comes_later(name: str) -> None:
    later = {other for other in imported_rooms(MODULES[name]) if ORDER.index(other) > ORDER.index(room(name))}
    assert {other for other in later if (name, other) not in ALLOWED} == set()


def test_every_package_and_top_level_module_has_a_place_in_the_order() -> None:
    assert {room(name) for name in MODULES} == set(ORDER)


def test_every_exception_is_still_needed() -> None:
    used = {(name, other) for name, tree in MODULES.items() for other in imported_rooms(tree)}
    assert set(ALLOWED) <= used


def test_no_two_modules_have_the_same_name() -> None:
    """Files of commands are left out: cli/NAME.py is the command `captioner NAME`."""
    leaves = Counter(name.rsplit(".", 1)[1] for name in MODULES if not name.startswith("captioner.cli."))
    assert [leaf for leaf, count in leaves.items() if count > 1] == []
