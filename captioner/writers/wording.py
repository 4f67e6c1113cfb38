"""Wording: a caption as the text that people read, in lines of text, in sidecars and wherever a caption is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from captioner.caption import Caption
from captioner.errors import UsageError

Style = Literal["sentence", "plain"]
STYLES: tuple[Style, ...] = get_args(Style)


@dataclass(frozen=True)
class Wording:
    """Makes the text of a caption: a sentence or the model's plain words, between a prefix and a suffix."""

    style: Style = "sentence"
    prefix: str = ""
    suffix: str = ""

    def __post_init__(self) -> None:
        for name in ("prefix", "suffix"):
            if set("\r\n\t") & set(getattr(self, name)):
                raise UsageError(f"--{name} must not contain tabs or line breaks: a caption is one line")

    def text(self, caption: Caption) -> str:
        return f"{self.prefix}{caption.sentence if self.style == 'sentence' else caption.text}{self.suffix}"

    def lines(self, caption: Caption) -> str:
        """One line per caption: the best one, then its alternatives."""
        return "".join(f"{self.text(one)}\n" for one in (caption, *caption.alternatives))
