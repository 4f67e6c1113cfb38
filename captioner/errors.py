"""The one exception a user can meet, and the sentence for a name that isn't known.

CaptionerError            something a user can put right; the message says what, where and how
└── UsageError            the call itself is wrong (unknown model, no image at all): exit code 2
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CaptionerError(Exception):
    """Something a user can put right; the command line prints it without a traceback."""


class UsageError(CaptionerError):
    """The call is wrong, before any work was done."""


def nearest(name: str, choices: Iterable[str], count: int = 1) -> list[str]:
    """The choices that look most like `name`, best first; empty where nothing is close."""
    return difflib.get_close_matches(name, list(choices), n=count, cutoff=0.5)


def unknown(kind: str, name: str, choices: Iterable[str]) -> UsageError:
    """The error for a wrong name: lists the right ones and suggests the nearest."""
    names = list(choices)
    close = nearest(name, names)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return UsageError(f"unknown {kind} {name!r}.{hint} Known: {', '.join(names)}.")
