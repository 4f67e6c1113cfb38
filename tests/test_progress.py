"""The progress bar: on a terminal it is drawn and erased, elsewhere it is silent or a plain line now and then."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from captioner.progress import ProgressBar, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest replaces sys.stderr between the set-up of a test and the test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return stream


def test_a_terminal_shows_the_label_and_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with ProgressBar("captioning", total=4) as bar:
        bar.advance()
        assert "captioning" in terminal.getvalue()
        assert "1/4" in terminal.getvalue()


def test_clear_erases_the_line_and_the_next_count_draws_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    bar = ProgressBar("captioning", total=4)
    bar.advance()
    bar.clear()
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K")  # one line up, and erase that line
    cleared = len(terminal.getvalue())
    bar.advance()
    bar.clear()
    assert "2/4" in terminal.getvalue()[cleared:]
    assert terminal.getvalue().endswith("\x1b[1A\x1b[2K")


def test_the_cursor_is_visible_again_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), ProgressBar(total=2) as bar:
        bar.advance()
        raise KeyboardInterrupt
    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l")


def test_captions_printed_while_the_bar_is_shown_stay_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = use_terminal(monkeypatch)
    with ProgressBar(total=2) as bar:
        bar.advance()
        print("[bold]a dog[/bold]")
    assert capsys.readouterr().out == "[bold]a dog[/bold]\n"
    assert "a dog" not in terminal.getvalue()


def test_without_a_terminal_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("captioning", total=2) as bar:
        bar.advance()
        bar.advance()
    assert capsys.readouterr().err == ""


def test_plain_lines_are_printed_now_and_then_for_log_files(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar(total=250, plain_every=100) as bar:
        for done in range(7, 251, 9):  # never a multiple of a hundred
            bar.show(done, text="working")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("/")[0] for line in lines] == ["7", "106", "205", "250"]
    assert lines[0] == "7/250 working"
    assert lines[1].startswith("106/250 working, ")
    assert lines[1].endswith(" left")


def test_the_speed_counts_from_the_first_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([10.0, 20.0, 110.0])
    monkeypatch.setattr("captioner.progress.time.monotonic", lambda: next(times))
    with ProgressBar("encoding", "images", plain_every=1) as bar:
        bar.show(100, 400)  # a cache that holds 100 already
        bar.show(120, 400)
        bar.show(400, 400)
    assert capsys.readouterr().err.splitlines() == [
        "100/400 encoding",
        "120/400 encoding, 2.0 images/s, 2:20 left",
        "400/400 encoding, 3.0 images/s, 0:00 left",
    ]


def test_durations_read_as_people_write_them() -> None:
    assert [duration(seconds) for seconds in (5, 65, 3600, 36125)] == ["0:05", "1:05", "1:00:00", "10:02:05"]


def test_neither_rich_nor_torch_is_imported_before_a_bar_is_drawn() -> None:
    code = "import sys, captioner.progress as p; p.ProgressBar().advance(); print({'rich', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
