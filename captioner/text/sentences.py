"""Readable sentences: from a caption's tokens to English with a capital, a full stop and joined words."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The tokenizer's names for brackets, and the one pronoun that is always a capital.
_SPELLED = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}", "i": "I"}
# Tokens that the detokenizer joins with a space and nothing else, unless they are the second part of a contraction
# ("can not", "gon na", "lem me", "more 'n").
_PLAIN_WORD = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SECOND_PARTS = {"not", "me", "na", "ta", "n", "ye", "is", "was"}
_FIRST_LETTER = re.compile(r"^(\W*)([^\W\d_])")


def sentence(tokens: Sequence[str]) -> str:
    """The tokens as a sentence: "a dog does n't move" becomes "A dog doesn't move."."""
    text = _joined([_SPELLED.get(token, token) for token in tokens])
    if not text:
        return ""
    if not text.startswith("<"):  # <unk> stays as it is
        text = _FIRST_LETTER.sub(lambda match: match[1] + match[2].upper(), text)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _joined(tokens: Sequence[str]) -> str:
    words = [token for token in tokens if token != "I"]
    if all(_PLAIN_WORD.fullmatch(word) for word in words) and not _SECOND_PARTS & set(words):
        return " ".join(tokens)
    from nltk.tokenize.treebank import TreebankWordDetokenizer  # imported here: nltk takes a third of a second

    text: str = TreebankWordDetokenizer().detokenize(list(tokens))
    return text
