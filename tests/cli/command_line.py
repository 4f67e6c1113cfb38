"""The whole command line with its error handling, in the process of the test."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from unittest import mock

import pytest

from captioner import cli


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Done:
    """`captioner` with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", ["captioner", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        cli.run()
    assert isinstance(left.value.code, int)
    return Done(left.value.code, out.getvalue(), err.getvalue())
