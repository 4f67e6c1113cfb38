"""torchvision imports, and its backbones run, whether or not its compiled operators load."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

# A package with torchvision's way of importing: an extension that may not load, shape functions attached to
# the operators all the same, and a submodule that looks the package up by its full name.
INIT = """
from . import extension
from torchvision import shapes
"""
EXTENSION = """
import torch
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for name in {present}:
    OPERATORS.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
SHAPES = """
import torch, torchvision
torchvision.extension
for name in {asked}:
    torch.library.register_fake("torchvision::" + name)(lambda dets, scores, iou_threshold: dets.new_empty(0))
"""


def python(code: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter: operators once declared stay for the life of a process."""
    insert = f"import sys; sys.path.insert(0, {str(path)!r})\n" if path else ""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", insert + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def package(folder: Path, present: list[str], asked: list[str]) -> Path:
    home = folder / "torchvision"
    home.mkdir()
    (home / "__init__.py").write_text(INIT)
    (home / "extension.py").write_text(EXTENSION.format(present=present))
    (home / "shapes.py").write_text(SHAPES.format(asked=asked))
    return folder


def test_a_backbone_of_the_installed_torchvision_runs() -> None:
    done = python("""
        from captioner.model.vision import torchvision
        import torch, torchvision as again
        assert again is torchvision
        net = torchvision.models.resnet18().eval()
        with torch.no_grad():
            print(tuple(net(torch.zeros(1, 3, 64, 64)).shape))
        """)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "(1, 1000)"


def test_operators_are_declared_only_where_the_installed_extension_does_not_load() -> None:
    done = python("""
        from captioner.model.vision import declared_operators, torchvision
        assert bool(declared_operators()) != torchvision.extension._has_ops(), declared_operators()
        """)
    assert done.returncode == 0, done.stderr


def test_an_operator_without_a_kernel_still_refuses_to_run() -> None:
    done = python("""
        from captioner.model.vision import declared_operators, torchvision
        import torch
        if not declared_operators():
            print("compiled")
        else:
            torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
        """)
    assert "compiled" in done.stdout or "C++ ops" in done.stderr, done.stderr


def test_where_the_extension_loads_nothing_is_declared(tmp_path: Path) -> None:
    folder = package(tmp_path, present=["nms", "qnms"], asked=["nms", "qnms"])
    done = python("from captioner.model.vision import declared_operators as d; print(d())", folder)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("missing", [["nms"], ["nms", "qnms"]])
def test_exactly_the_missing_operators_are_declared(tmp_path: Path, missing: list[str]) -> None:
    present = [name for name in ("nms", "qnms") if name not in missing]
    folder = package(tmp_path, present, asked=["nms", "qnms"])
    done = python("from captioner.model.vision import declared_operators as d; print(*d())", folder)
    assert done.stdout.split() == missing, done.stderr


def test_an_operator_nobody_knows_fails_as_it_did(tmp_path: Path) -> None:
    folder = package(tmp_path, present=[], asked=["polygon_nms"])
    done = python("import captioner.model.vision", folder)
    assert done.returncode != 0
    assert "operator torchvision::polygon_nms does not exist" in done.stderr


def test_any_other_failure_of_the_import_is_passed_on(tmp_path: Path) -> None:
    home = tmp_path / "torchvision"
    home.mkdir()
    (home / "__init__.py").write_text("raise RuntimeError('built for another torch')")
    done = python("import captioner.model.vision", tmp_path)
    assert "built for another torch" in done.stderr
