"""Messages for people: on one terminal line, without control characters, and of a sane length.

File names, manifests and metadata come from others. Printed as they are, they could move the cursor, change the title
of the window, or hide what a message says.
"""

from __future__ import annotations

import re
import sys

from captioner.errors import UsageError

MESSAGE_LIMIT = 4000  # characters

# C0 and C1 controls, line and paragraph separators, marks that change the direction of text, lone surrogates.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str, limit: int | None = MESSAGE_LIMIT) -> str:
    """The text with every unprintable character as its number, such as \\x1b, and cut in the middle if it is long."""
    if limit is not None and len(text) > limit:
        half = limit // 2
        text = f"{text[:half]} … ({len(text) - 2 * half:,} characters left out) … {text[-half:]}"
    return UNPRINTABLE.sub(_escaped, text)


def say(message: str) -> None:
    """Print a message to standard error. It is one line, so a line break in a file name cannot begin another one."""
    if sys.stderr is not None:  # closed with 2>&-
        print(printable(message), file=sys.stderr, flush=True)


def check_standard_output() -> None:
    """Refuse a command whose only result would be lost, before it does any work."""
    if sys.stdout is None:  # closed with >&-
        raise UsageError("standard output is closed, so there is nowhere to write the result")


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
