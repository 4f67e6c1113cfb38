"""Text of others cannot drive a terminal, and a message has a sane length."""

from __future__ import annotations

import pytest

from captioner.errors import brief
from captioner.terminal import MESSAGE_LIMIT, printable, say


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("photo.jpg", "photo.jpg"),
        ("日本語 é ñ 🙂", "日本語 é ñ 🙂"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\rb\nc\td", "a\\x0db\\x0ac\\x09d"),
        ("\x9b31m", "\\x9b31m"),
        ("gpj.\u202ephoto", "gpj.\\u202ephoto"),
        ("a\u2028b\u2066c", "a\\u2028b\\u2066c"),
        (b"\xff\xfe.jpg".decode("utf-8", "surrogateescape"), "\\xff\\xfe.jpg"),
    ],
)
def test_control_characters_and_bidi_marks_are_shown_by_their_number(text, shown):
    assert printable(text) == shown


def test_a_message_of_megabytes_is_cut(capsys):
    say("begin " + "x" * 6_000_000 + " end")
    shown = capsys.readouterr().err
    assert len(shown) < MESSAGE_LIMIT + 100
    assert shown.startswith("begin x") and shown.endswith("x end\n") and "characters left out" in shown


def test_a_large_value_is_shown_briefly():
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep, deep]  # would be 2 ** 10,000 brackets
    assert len(brief(deep)) < 500
    assert len(brief({"key": "x" * 1_000_000})) < 500
    assert brief("./no such folder") == "'./no such folder'"
