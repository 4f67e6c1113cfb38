"""The exceptions of this package, and the message for an unknown name.

CaptionerError            something that the user can fix; the message says what is wrong, where, and what to do
└── UsageError            the call itself is wrong, such as an unknown model or option: exit code 2
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother, _BRIEF.maxlong = 3, 200, 100, 40


class CaptionerError(Exception):
    """Something that the user can fix. The command line prints the message without a traceback."""


class UsageError(CaptionerError):
    """The call is wrong. It is raised before any work is done."""


def brief(value: object) -> str:
    """A value as Python shows it, for messages: long texts and deep or large collections are cut."""
    return _BRIEF.repr(value)


def nearest(name: str, choices: Iterable[str], count: int = 1) -> list[str]:
    """The choices most similar to `name`, best first; empty if none is similar."""
    import difflib  # imported here: few calls are wrong

    return difflib.get_close_matches(name, list(choices), n=count, cutoff=0.5)


def unknown(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for an unknown name. It lists the known names and suggests the nearest one."""
    names = list(choices)
    close = nearest(name, names)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UsageError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names)}.")
