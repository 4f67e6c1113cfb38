"""torchvision imports, and its backbones run, whether or not its compiled operators load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

# A declared operator stays for the life of a process. So each case runs in its own process, forked from one that has
# already imported torch, which is slow.
FORKED = """
import json, os, sys, torch
for folder in sys.argv[1:]:
    if os.fork() == 0:
        sys.path.insert(0, folder)
        try:
            from captioner.workarounds.torchvision_import import _declared
            print(json.dumps([folder, list(_declared)]), flush=True)
        except Exception as error:
            print(json.dumps([folder, str(error)]), flush=True)
        os._exit(0)
    os.wait()
"""
INSTALLED = """
import json, torch
from captioner.workarounds.torchvision_import import _declared, torchvision
import torchvision as again
with torch.no_grad():
    logits = torchvision.models.resnet18().eval()(torch.zeros(1, 3, 64, 64))
try:
    refusal = torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5) and ""
except RuntimeError as error:
    refusal = str(error)
print(json.dumps({"same": again is torchvision, "logits": list(logits.shape), "refusal": refusal,
                  "declared": list(_declared), "compiled": torchvision.extension._has_ops()}))
"""


def python(code: str, *arguments: str) -> list[Any]:
    """The JSON values, one per line, that a new interpreter prints. Warnings are errors there."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def installed() -> Any:
    return python(INSTALLED)[0]


def test_a_backbone_of_the_installed_torchvision_runs(installed: Any) -> None:
    assert installed["same"]
    assert installed["logits"] == [1, 1000]


def test_operators_are_declared_only_where_the_installed_extension_does_not_load(installed: Any) -> None:
    assert bool(installed["declared"]) != installed["compiled"]


def test_a_declared_operator_without_a_kernel_refuses_to_run(installed: Any) -> None:
    if installed["compiled"]:
        pytest.skip("the compiled operators load here")
    assert "C++ ops" in installed["refusal"]


# Packages that import like torchvision: an extension that may lack operators, shape functions that need them, and a
# submodule that imports the package by its full name.
EXTENSION = """
import torch
library = torch.library.Library("torchvision", "FRAGMENT")
for name in {present}:
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
SHAPES = """
import torch, torchvision
torchvision.extension.library
for name in {asked}:
    torch.library.register_fake("torchvision::" + name)(lambda dets, scores, iou_threshold: dets.new_empty(0))
"""


def package(folder: Path, present: list[str], asked: list[str]) -> str:
    home = folder / "torchvision"
    home.mkdir(parents=True)
    (home / "__init__.py").write_text("from . import extension\nfrom torchvision import shapes\n")
    (home / "extension.py").write_text(EXTENSION.format(present=present))
    (home / "shapes.py").write_text(SHAPES.format(asked=asked))
    return str(folder)


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Per case: the operators that were declared, or the message of the error."""
    here = tmp_path_factory.mktemp("torchvisions")
    both = ["nms", "qnms"]
    cases = {
        "all there": package(here / "all", present=both, asked=both),
        "one missed": package(here / "one", present=[], asked=["nms"]),
        "all missed": package(here / "none", present=[], asked=both),
        "none asked": package(here / "silent", present=[], asked=[]),
        "unknown": package(here / "unknown", present=[], asked=["polygon_nms"]),
        "broken": package(here / "broken", present=both, asked=both),
    }
    (here / "broken" / "torchvision" / "__init__.py").write_text("raise RuntimeError('built for another torch')")
    answers = dict(python(FORKED, *cases.values()))
    return {case: answers[folder] for case, folder in cases.items()}


@pytest.mark.parametrize("case", ["all there", "none asked"])
def test_nothing_is_declared_if_no_operator_is_missing(imports: dict[str, Any], case: str) -> None:
    assert imports[case] == []


def test_exactly_the_missing_operators_are_declared(imports: dict[str, Any]) -> None:
    assert imports["one missed"] == ["nms"]
    assert imports["all missed"] == ["nms", "qnms"]


def test_an_operator_with_an_unknown_schema_still_fails(imports: dict[str, Any]) -> None:
    assert "operator torchvision::polygon_nms does not exist" in imports["unknown"]


def test_other_import_errors_are_passed_on(imports: dict[str, Any]) -> None:
    assert imports["broken"] == "built for another torch"
