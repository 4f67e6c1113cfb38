"""scripts/try and scripts/test install once, explain failures, and pass their arguments on.

A fake Python creates the virtual environments. Its programs only log their arguments.
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

# `-m venv` creates a folder of programs that log their arguments. pip fails if the file "offline" exists.
FAKE_PYTHON = """#!/bin/sh
if [ "$1 $2" != "-m venv" ]; then exec {python} "$@"; fi
for folder; do :; done
mkdir -p "$folder/bin"
for program in python captioner ruff mypy; do
    cat >"$folder/bin/$program" <<'END'
#!/bin/sh
echo "$(basename "$0") $*" >>{log}
case "$*" in *"pip install"*) [ ! -e {offline} ] || exit 1 ;; esac
END
    chmod +x "$folder/bin/$program"
done
"""


@dataclass(frozen=True)
class Checkout:
    """A checkout that holds only the scripts, and the log of what their environments were asked to do."""

    folder: Path
    python: Path
    log: Path
    offline: Path

    def run(self, script: str, *arguments: str, cwd: Path | None = None) -> tuple[int, Sequence[str], str]:
        """Run a script. Returns its exit code, the commands that its environment ran, and standard error."""
        self.log.write_text("")
        done = subprocess.run(
            [self.folder / script, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd or self.folder,
            env={**os.environ, "PYTHON": str(self.python), "CI": ""},
        )
        return done.returncode, self.log.read_text().splitlines(), done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    folder = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    checkout = Checkout(folder, tmp_path / "a python", tmp_path / "log", tmp_path / "offline")
    checkout.python.write_text(FAKE_PYTHON.format(python=sys.executable, log=checkout.log, offline=checkout.offline))
    checkout.python.chmod(0o755)
    return checkout


def installations(commands: Sequence[str]) -> list[str]:
    return [line for line in commands if "pip install" in line]


@pytest.mark.parametrize(("script", "requirement"), [("scripts/try", "."), ("scripts/test", ".[dev]")])
def test_the_first_run_installs_under_the_constraints_and_the_second_installs_nothing(
    checkout: Checkout, script: str, requirement: str
) -> None:
    code, commands, _ = checkout.run(script)
    assert code == 0
    (installed,) = installations(commands)
    assert "--constraint constraints.txt" in installed
    assert installed.endswith(f"--editable {requirement}")
    code, commands, _ = checkout.run(script)
    assert code == 0
    assert installations(commands) == []


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_the_requirements_installs_again(checkout: Checkout, changed: str) -> None:
    checkout.run("scripts/try")
    with (checkout.folder / changed).open("a") as file:
        file.write("# changed\n")
    assert len(installations(checkout.run("scripts/try")[1])) == 1


def test_a_change_of_the_code_installs_nothing(checkout: Checkout) -> None:
    checkout.run("scripts/try")
    (checkout.folder / "captioner").mkdir()
    (checkout.folder / "captioner" / "new.py").write_text("")
    assert installations(checkout.run("scripts/try")[1]) == []


def test_a_failed_installation_says_what_to_do_and_the_next_run_tries_again(checkout: Checkout) -> None:
    checkout.offline.touch()
    code, commands, message = checkout.run("scripts/try")
    assert code != 0
    assert "PIP_INDEX_URL" in message
    assert not any(line.startswith("captioner") for line in commands)
    checkout.offline.unlink()
    code, commands, _ = checkout.run("scripts/try")
    assert code == 0
    assert len(installations(commands)) == 1


def test_try_captions_the_examples_by_default(checkout: Checkout) -> None:
    _, commands, _ = checkout.run("scripts/try")
    assert f"captioner caption {checkout.folder / 'examples'}" in commands


def test_try_captions_the_given_pictures_and_writes_into_the_current_folder(checkout: Checkout, tmp_path: Path) -> None:
    _, commands, message = checkout.run("scripts/try", "a.jpg", "b.png", cwd=tmp_path)
    assert "captioner caption a.jpg b.png" in commands
    (overlay,) = [line for line in commands if line.startswith("captioner overlay")]
    assert "a.jpg b.png" in overlay
    assert "--format html " in overlay
    assert str(tmp_path / "out") in overlay
    assert str(tmp_path / "out") in message


def test_try_writes_sheets_when_asked(checkout: Checkout, tmp_path: Path) -> None:
    _, commands, _ = checkout.run("scripts/try", "--sheets", "a.jpg", cwd=tmp_path)
    (overlay,) = [line for line in commands if line.startswith("captioner overlay")]
    assert "captioner overlay a.jpg " in overlay and "--format html,png " in overlay


def test_test_runs_every_check_and_passes_arguments_to_pytest(checkout: Checkout) -> None:
    _, commands, _ = checkout.run("scripts/test", "tests/inference", "-x")
    checks = [line for line in commands if "pip install" not in line]
    assert checks == [
        "ruff check .",
        "ruff format --check .",
        "mypy --strict",
        "python -m pytest -n auto --dist loadfile tests/inference -x",
    ]


def test_after_a_failed_check_the_others_still_run_and_the_exit_code_is_1(checkout: Checkout) -> None:
    checkout.run("scripts/test")
    ruff = checkout.folder / ".venv-test" / "bin" / "ruff"
    ruff.write_text("#!/bin/sh\nexit 1\n")
    code, commands, _ = checkout.run("scripts/test")
    assert code == 1
    assert "python -m pytest" in " ".join(commands)


def test_ci_runs_the_tests(checkout: Checkout) -> None:
    checkout.run("scripts/test")
    code, commands, _ = checkout.run(".ci/run")
    assert code == 0
    assert any("-m pytest" in line for line in commands)


def test_the_message_names_a_python_that_is_too_old(checkout: Checkout) -> None:
    checkout.python.write_text("#!/bin/sh\nexit 1\n")
    code, _, message = checkout.run("scripts/try")
    assert code != 0
    assert str(checkout.python) in message
    assert "3.10" in message
