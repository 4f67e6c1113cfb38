"""The summary of a run: the line at the end, the file, and what is retried."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from captioner.errors import UsageError
from captioner.images.inputs import Skipped
from captioner.writers.run_summary import RunSummary, read_failed


def summary() -> RunSummary:
    left_out = [
        Skipped("p/more", "folder not entered", "p/more: not entered"),
        Skipped("p/a.svg", "drawing", "p/a.svg: SVG", "SVG"),
    ]
    made = RunSummary(left_out)
    made.captioned = 13
    for name in ("p/1.nef", "p/2.nef", "p/3.nef", "p/4.cr2"):
        made.skipped.append(Skipped(name, "raw", f"{name}: no preview", Path(name).suffix[1:].upper()))
    made.skipped.append(Skipped("p/5.heic", "HEIC", "p/5.heic: HEIC needs pillow-heif: pip install x"))
    return made


def test_the_line_counts_what_was_captioned_and_what_was_skipped(monkeypatch) -> None:
    monkeypatch.setattr(
        "captioner.writers.run_summary.install_command", lambda extra: f"pip install 'captioner[{extra}]'"
    )
    assert summary().line() == (
        "13 captioned, 7 skipped: 4 raw (NEF, CR2), 1 HEIC (pip install 'captioner[heic]'), 1 SVG, "
        "1 folder not entered (use -r)"
    )


def test_a_run_without_loss_has_no_line() -> None:
    made = RunSummary()
    made.captioned = 3
    assert made.line() is None


def test_failures_are_grouped_by_what_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "a.nef").write_bytes(b"II*\0\x08\0\0\0")
    made = RunSummary()
    made.add_failure(str(tmp_path / "a.nef"), "a.nef: no preview")
    made.add_failure("b.jpg", "b.jpg: cannot be read")
    made.add_failure("c.jpg", "c.jpg: no such file")
    made.add_failure("d.jpg", "d.txt: cannot be written", "sidecar")
    assert (
        made.line()
        == "0 captioned, 4 skipped: 1 raw (NEF), 1 unreadable, 1 missing, 1 caption not written to its photo"
    )


def test_the_file_has_every_name_and_reason_and_gives_back_what_failed(tmp_path: Path) -> None:
    summary().write(tmp_path / "s.json")
    values = json.loads((tmp_path / "s.json").read_text())
    assert (values["captioned"], values["skipped"], values["complete"]) == (13, 7, False)
    assert values["counts"] == {"folder not entered": 1, "SVG": 1, "NEF": 3, "CR2": 1, "HEIC": 1}
    assert {entry["image"]: entry["reason"] for entry in values["inputs"]}["p/a.svg"] == "p/a.svg: SVG"
    assert read_failed(tmp_path / "s.json") == ["p/1.nef", "p/2.nef", "p/3.nef", "p/4.cr2", "p/5.heic"]


@pytest.mark.parametrize("content", ["", "[]", '{"inputs": [{"image": 3, "kind": "raw"}]}', '{"inputs": [1]}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(UsageError, match="not a file of `captioner caption --summary`"):
        read_failed(tmp_path / "s.json")
