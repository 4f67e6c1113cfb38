"""The `captioner` command: fast help, hints for misspelt names, exit codes, errors in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import click
import pytest

from captioner import __version__, cli
from captioner.errors import CaptionerError, UsageError

HEAVY = {"torch", "torchvision", "onnxruntime", "numpy", "pydantic", "PIL", "nltk", "pycocotools", "rich"}


def captioner(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "captioner", *arguments], capture_output=True, text=True, timeout=60)


def test_help_imports_no_large_library() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "captioner", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "captioner.cli" in imported, "the import log was not read"
    assert not HEAVY & {name.partition(".")[0] for name in imported}


def test_help_lists_every_command_with_its_description() -> None:
    shown = captioner("--help").stdout
    for name, (_, description) in cli.COMMANDS.items():
        assert any(row.split()[:1] == [name] for row in shown.splitlines()), name
        assert description.split(":")[0].split(".")[0] in " ".join(shown.split())


def test_version_prints_the_package_version() -> None:
    assert captioner("--version").stdout.strip().endswith(__version__)


def test_a_misspelt_command_exits_2_with_a_suggestion_and_all_commands() -> None:
    done = captioner("captoin")
    assert done.returncode == 2
    assert "Did you mean 'caption'?" in done.stderr
    assert "evaluate" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_option_exits_2() -> None:
    done = captioner("--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with a command that raises the module's `error`."""
    module = ModuleType("captioner.cli.failing")

    @click.command()
    def command() -> None:
        raise module.error

    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, "failing", (module.__name__, "Fails."))
    yield module


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["captioner", *arguments])
    monkeypatch.setattr(cli, "_leave", sys.exit)  # which really ends the process
    with pytest.raises(SystemExit) as stop:
        cli.run()
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CaptionerError("three pictures could not be read"), 1),
        (UsageError("no picture was given"), 2),
        (click.exceptions.Abort(), 130),
        (click.exceptions.Exit(1), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(
    failing: ModuleType, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    failing.error = error  # type: ignore[attr-defined]
    assert run(monkeypatch, "failing") == code


def completions(*words: str) -> set[str]:
    """What the shell offers for the last word."""
    line = " ".join(("captioner", *words))
    environment = os.environ | {"_CAPTIONER_COMPLETE": "bash_complete", "COMP_WORDS": line}
    code = "import sys; sys.argv = ['captioner']; from captioner.cli import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"COMP_CWORD": str(len(words))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.stderr
    return {line.partition(",")[2] for line in done.stdout.splitlines()}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("cap",), {"caption"}),
        (("caption", "--model", "ha"), {"hard"}),
        (("caption", "-m", "flickr"), {"flickr8k-hard", "flickr8k-soft"}),
        (("caption", "--format", "j"), {"jsonl"}),
        (("overlay", "--format", "png,h"), {"png,html"}),
        (("overlay", "--compare", "d"), {"default"}),
        (("evaluate", "--format", "k"), {"karpathy"}),
        (("caption", "--style", ""), {"sentence", "plain"}),
    ],
)
def test_the_shell_completes_commands_models_and_formats(words: tuple[str, ...], offered: set[str]) -> None:
    assert completions(*words) == offered


def test_an_error_is_printed_as_one_sentence_on_standard_error(
    failing: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing.error = CaptionerError("no model in weights/default")  # type: ignore[attr-defined]
    run(monkeypatch, "failing")
    shown = capsys.readouterr()
    assert shown.err == "captioner: no model in weights/default\n"
    assert shown.out == ""


def test_debug_lets_the_traceback_through(failing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    failing.error = CaptionerError("no model in weights/default")  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "argv", ["captioner", "--debug", "failing"])
    with pytest.raises(CaptionerError):
        cli.run()


def test_a_package_missing_at_import_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Missing:
        """An import hook that acts as if torch were not installed."""

        def find_spec(self, name: str, *rest: object) -> None:
            if name == "captioner.cli.heavy":
                raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    monkeypatch.setitem(cli.COMMANDS, "heavy", ("captioner.cli.heavy", "Needs torch."))
    assert run(monkeypatch, "heavy") == 2
    message = capsys.readouterr().err
    assert "'torch'" in message
    assert "[train]'" in message


def test_a_package_missing_while_a_command_runs_says_what_to_install(
    failing: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands import large libraries when they run, not when they are looked up."""
    failing.error = ModuleNotFoundError("No module named 'torch'", name="torch")  # type: ignore[attr-defined]
    assert run(monkeypatch, "failing") == 2
    assert "[train]'" in capsys.readouterr().err


def test_a_closed_pipe_ends_the_command_without_a_message() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "captioner", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, shown = process.communicate(timeout=60)
    assert (process.returncode, shown) == (1, "")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), "captioner: No space left on device\n"),
        (OSError(13, "Permission denied", "a"), "captioner: a: Permission denied\n"),
        (OSError(28, "No space left on device", "from", None, "to"), "captioner: to: No space left on device\n"),
    ],
)
def test_an_error_of_the_operating_system_is_one_sentence(monkeypatch, capsys, error: OSError, message: str) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr(cli, "main", fail)
    monkeypatch.setattr(sys, "argv", ["captioner", "models"])
    with pytest.raises(SystemExit) as stop:
        cli.run()
    assert stop.value.code == 1
    assert capsys.readouterr().err == message
    monkeypatch.setattr(sys, "argv", ["captioner", "--debug", "models"])
    with pytest.raises(OSError):
        cli.run()
