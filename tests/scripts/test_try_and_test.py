"""scripts/try and scripts/test set themselves up once, say what went wrong, and pass their arguments on.

The environments are made by a stand-in for Python that only notes what it was asked to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="the scripts are for bash")

# `-m venv` makes a folder with programs that note their arguments; pip fails where a file "offline" exists.
STAND_IN = """#!/bin/sh
if [ "$1 $2" != "-m venv" ]; then exec {python} "$@"; fi
for folder; do :; done
mkdir -p "$folder/bin"
for program in python captioner ruff mypy; do
    cat >"$folder/bin/$program" <<'END'
#!/bin/sh
echo "$(basename "$0") $*" >>{notes}
case "$*" in *"pip install"*) [ ! -e {offline} ] || exit 1 ;; esac
END
    chmod +x "$folder/bin/$program"
done
"""


@dataclass(frozen=True)
class Checkout:
    """A checkout with the scripts alone, and what its environments were asked to do."""

    folder: Path
    python: Path
    notes: Path
    offline: Path

    def run(self, script: str, *arguments: str, cwd: Path | None = None) -> tuple[int, Sequence[str], str]:
        """Exit code, what was asked of the environment's programs, and standard error."""
        self.notes.write_text("")
        done = subprocess.run(
            [self.folder / script, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd or self.folder,
            env={**os.environ, "PYTHON": str(self.python), "CI": ""},
        )
        return done.returncode, self.notes.read_text().splitlines(), done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    made = Checkout(folder, tmp_path / "a python", tmp_path / "notes", tmp_path / "offline")
    made.python.write_text(STAND_IN.format(python=sys.executable, notes=made.notes, offline=made.offline))
    made.python.chmod(0o755)
    return made


def installations(notes: Sequence[str]) -> list[str]:
    return [line for line in notes if "pip install" in line]


@pytest.mark.parametrize(("script", "requirement"), [("scripts/try", "."), ("scripts/test", ".[dev]")])
def test_the_first_run_installs_under_the_constraints_and_the_second_installs_nothing(
    checkout: Checkout, script: str, requirement: str
) -> None:
    code, notes, _ = checkout.run(script)
    assert code == 0
    (installed,) = installations(notes)
    assert "--constraint constraints.txt" in installed
    assert installed.endswith(f"--editable {requirement}")
    code, notes, _ = checkout.run(script)
    assert code == 0
    assert installations(notes) == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_asked_for_installs_again(checkout: Checkout, changed: str) -> None:
    checkout.run("scripts/try")
    with (checkout.folder / changed).open("a") as file:
        file.write("# changed\n")
    assert len(installations(checkout.run("scripts/try")[1])) == 1


def test_a_change_of_the_code_installs_nothing(checkout: Checkout) -> None:
    checkout.run("scripts/try")
    (checkout.folder / "captioner").mkdir()
    (checkout.folder / "captioner" / "new.py").write_text("")
    assert installations(checkout.run("scripts/try")[1]) == []


def test_an_installation_that_failed_says_what_to_do_and_is_tried_again(checkout: Checkout) -> None:
    checkout.offline.touch()
    code, notes, message = checkout.run("scripts/try")
    assert code != 0
    assert "PIP_INDEX_URL" in message
    assert not any(line.startswith("captioner") for line in notes)
    checkout.offline.unlink()
    code, notes, _ = checkout.run("scripts/try")
    assert code == 0
    assert len(installations(notes)) == 1


def test_try_captions_the_examples_where_no_picture_is_given(checkout: Checkout) -> None:
    _, notes, _ = checkout.run("scripts/try")
    assert f"captioner caption {checkout.folder / 'examples'}" in notes


def test_try_captions_the_pictures_given_and_writes_where_it_was_called(checkout: Checkout, tmp_path: Path) -> None:
    _, notes, message = checkout.run("scripts/try", "a.jpg", "b.png", cwd=tmp_path)
    assert "captioner caption a.jpg b.png" in notes
    (overlay,) = [line for line in notes if line.startswith("captioner overlay")]
    assert "a.jpg b.png" in overlay
    assert str(tmp_path / "out") in overlay
    assert str(tmp_path / "out") in message


def test_test_runs_every_check_and_passes_arguments_to_pytest(checkout: Checkout) -> None:
    _, notes, _ = checkout.run("scripts/test", "tests/search", "-x")
    said = [line for line in notes if "pip install" not in line]
    assert said == ["ruff check .", "ruff format --check .", "mypy --strict", "python -m pytest tests/search -x"]


def test_a_check_that_fails_does_not_hide_the_others_and_fails_the_whole(checkout: Checkout) -> None:
    checkout.run("scripts/test")
    ruff = checkout.folder / ".venv-test" / "bin" / "ruff"
    ruff.write_text("#!/bin/sh\nexit 1\n")
    code, notes, _ = checkout.run("scripts/test")
    assert code == 1
    assert "python -m pytest" in " ".join(notes)


def test_ci_runs_the_tests(checkout: Checkout) -> None:
    checkout.run("scripts/test")
    code, notes, _ = checkout.run(".ci/run")
    assert code == 0
    assert any("-m pytest" in line for line in notes)


def test_a_python_that_is_too_old_is_named(checkout: Checkout) -> None:
    checkout.python.write_text("#!/bin/sh\nexit 1\n")
    code, _, message = checkout.run("scripts/try")
    assert code != 0
    assert str(checkout.python) in message
    assert "3.10" in message
