"""METEOR's own tokenizer, which splits the tokens of the PTB tokenizer further."""

from __future__ import annotations

import re

_LETTER = r"[^\W\d_]"
_ALNUM = r"[^\W_]"
# Letters that METEOR keeps together. Each letter of another script becomes a token.
_KEPT = "a-z0-9\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0400-\u052f\u1d00-\u1eff"

_ACRONYM = re.compile(rf"(?<!\S)(?:{_LETTER}+\.)+{_LETTER}+\.(?!\S)")
_HYPHEN = re.compile(rf"({_ALNUM})-({_ALNUM})")
_DOTS = re.compile(r"(\.{2,})")
_SYMBOL = re.compile(rf"([^\s{_KEPT}.'\-,])")
_COMMA = re.compile(r"(?<!\d),|,(?!\d)")
_APOSTROPHE_INSIDE = re.compile(rf"({_LETTER})'({_LETTER})")
_APOSTROPHE_OUTSIDE = re.compile(rf"(?<!{_LETTER})'|'(?!{_LETTER})")
_FINAL_STOP = re.compile(rf"(?<=[^\s.])\.(?=\s*$|\s+(?!{_LETTER})\S)")


def meteor_words(caption: str) -> list[str]:
    """The words METEOR sees in a caption whose tokens are joined by spaces."""
    text = caption.lower().replace("--", "-").replace("``", '"').replace("''", '"').replace("`", "'")
    text = _ACRONYM.sub(lambda match: match.group().replace(".", ""), text)
    text = _HYPHEN.sub(r"\1 \2", text)
    text = _SYMBOL.sub(r" \1 ", text)
    text = _DOTS.sub(r" \1 ", text)
    text = _COMMA.sub(" , ", text)
    text = _APOSTROPHE_OUTSIDE.sub(" ' ", text)
    text = _APOSTROPHE_INSIDE.sub(r"\1 '\2", text)
    text = _FINAL_STOP.sub(" .", text)
    return text.split()
