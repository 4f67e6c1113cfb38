"""Readable sentences: from a caption's tokens to English with a capital, a full stop and joined words."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The tokenizer's names for brackets, and the one pronoun that is always a capital.
_SPELLED = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}", "i": "I"}
_FIRST_LETTER = re.compile(r"^(\W*)([^\W\d_])")


def sentence(tokens: Sequence[str]) -> str:
    """The tokens as a sentence: "a dog does n't move" becomes "A dog doesn't move."."""
    from nltk.tokenize.treebank import TreebankWordDetokenizer  # imported here: nltk takes a third of a second

    text = TreebankWordDetokenizer().detokenize([_SPELLED.get(token, token) for token in tokens])
    if not text:
        return ""
    if not text.startswith("<"):  # <unk> stays as it is
        text = _FIRST_LETTER.sub(lambda match: match[1] + match[2].upper(), text)
    return text if text.endswith((".", "!", "?")) else f"{text}."
