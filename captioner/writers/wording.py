"""Wording: a caption as the text that people read, in lines of text, in sidecars and wherever a caption is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from captioner.errors import UsageError

if TYPE_CHECKING:
    from captioner.caption import Caption

Style = Literal["sentence", "plain"]
STYLES: tuple[Style, ...] = get_args(Style)

# What happens to a caption that is less certain than the user wants: it is left out, marked, or replaced by a text.
Unsure = Literal["skip", "mark", "say"]
UNSURE: tuple[Unsure, ...] = get_args(Unsure)
UNSURE_TEXT = "no reliable caption"


class Rated(Protocol):
    """A caption of the model, or one that was read from a file."""

    @property
    def confidence(self) -> float | None: ...


@dataclass(frozen=True)
class Wording:
    """Makes the text of a caption: a sentence or the model's plain words, between a prefix and a suffix.

    With `unsure="say"`, a caption whose confidence is below `min_confidence` is replaced by `unsure_text`.
    """

    style: Style = "sentence"
    prefix: str = ""
    suffix: str = ""
    min_confidence: float | None = None
    unsure: Unsure = "mark"
    unsure_text: str = UNSURE_TEXT

    def __post_init__(self) -> None:
        for name in ("prefix", "suffix", "unsure_text"):
            if set("\r\n\t") & set(getattr(self, name)):
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} must not contain tabs or line breaks: a caption is one line")

    def is_unsure(self, caption: Rated) -> bool:
        """Whether the confidence is below the limit. A caption without a confidence is never unsure."""
        return (
            self.min_confidence is not None
            and caption.confidence is not None
            and caption.confidence < self.min_confidence
        )

    def skips(self, caption: Rated) -> bool:
        return self.unsure == "skip" and self.is_unsure(caption)

    def marks(self, caption: Rated) -> bool:
        return self.unsure == "mark" and self.is_unsure(caption)

    def sentence(self, caption: Caption) -> str:
        """The sentence, or the text that replaces it."""
        return self.unsure_text if self.unsure == "say" and self.is_unsure(caption) else caption.sentence

    def text(self, caption: Caption) -> str:
        return self.complete(caption, caption.sentence if self.style == "sentence" else caption.text)

    def complete(self, caption: Rated, words: str) -> str:
        """The words of a caption between prefix and suffix, or the text that replaces them."""
        if self.unsure == "say" and self.is_unsure(caption):
            return self.unsure_text
        return f"{self.prefix}{words}{self.suffix}"

    def lines(self, caption: Caption) -> list[str]:
        """One line per caption: the best one, then its alternatives."""
        return [self.text(one) for one in (caption, *caption.alternatives)]
