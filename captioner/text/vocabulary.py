"""Vocabulary: words to numbers and back. The tokenizer itself is in `captioner.text.tokenizer`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.errors import CaptionerError, nearest
from captioner.text.tokenizer import tokenize

PAD, START, END, UNK = "<pad>", "<start>", "<end>", "<unk>"
SPECIAL = (PAD, START, END, UNK)
RECURS = 0.05  # a word recurs freely if so large a part of the captions that have it have it twice,
SEVERAL = 3  # and so many do: of rare words a single caption says nothing


@dataclass(frozen=True)
class Vocabulary:
    """The words a model can read and write, special tokens first."""

    words: tuple[str, ...]
    recurring: frozenset[str] = frozenset()  # those that recur freely in captions
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    pad, start, end, unk = 0, 1, 2, 3

    def __post_init__(self) -> None:
        if self.words[:4] != SPECIAL:
            raise CaptionerError(f"a vocabulary begins with {SPECIAL}, not {self.words[:4]}")
        object.__setattr__(self, "index", {word: i for i, word in enumerate(self.words)})
        if len(self.index) != len(self.words):
            twice = [word for word, n in Counter(self.words).items() if n > 1]
            raise CaptionerError(f"the vocabulary lists a word twice: {', '.join(twice[:5])}")
        strange = sorted(self.recurring.difference(self.words))
        if strange:
            raise CaptionerError(f"the vocabulary says that a word recurs which it doesn't have: {strange[0]}")

    @classmethod
    def build(cls, captions: Iterable[str], *, minimum_count: int = 5, maximum_size: int | None = None) -> Vocabulary:
        """From the captions of the training split alone; most frequent first, ties by spelling."""
        sentences = [tokenize(caption) for caption in captions]
        counts = Counter(token for tokens in sentences for token in tokens)
        for word in SPECIAL:  # a caption may spell one of them; it is then no word
            counts.pop(word, None)
        kept = sorted((w for w, n in counts.items() if n >= minimum_count), key=lambda w: (-counts[w], w))
        words = kept[:maximum_size]
        return cls(SPECIAL + tuple(words), _recurring(sentences).intersection(words))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def encode(self, caption: str) -> list[int]:
        """Word numbers of a caption, without start and end; unknown words become `<unk>`.

        So does text that spells a special token: a caption can't end itself early.
        """
        numbers = [self.index.get(token, self.unk) for token in tokenize(caption)]
        return [number if number >= len(SPECIAL) else self.unk for number in numbers]

    def decode(self, numbers: Sequence[int]) -> str:
        """The words of numbers up to the end token, special tokens but `<unk>` left out."""
        words = []
        for number in numbers:
            if number == self.end:
                break
            if number not in (self.pad, self.start):
                words.append(self.words[number])
        return " ".join(words)

    def number(self, word: str) -> int:
        """The number of a word that a user named; an unknown one is an error that names near words."""
        tokens = tokenize(word)
        for candidate in (tokens[0] if len(tokens) == 1 else word, word):
            number = self.index.get(candidate, self.unk)
            if number >= len(SPECIAL):
                return number
        close = nearest(word.lower(), self.words[4:], 3)
        hint = f" Near words: {', '.join(close)}." if close else ""
        raise CaptionerError(f"the word {word!r} is not in the model's vocabulary.{hint}")

    def save(self, path: Path) -> None:
        held = {"words": list(self.words), "recurring": sorted(self.recurring)}
        path.write_text(json.dumps(held, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            words, recurring = held["words"], held["recurring"]
            for name, some in (("words", words), ("recurring", recurring)):
                if not isinstance(some, list) or not all(isinstance(word, str) for word in some):
                    raise TypeError(f"`{name}` is not a list of words")
        except KeyError as error:
            raise CaptionerError(f"{path}: not a vocabulary file (it has no entry {error})") from None
        except (ValueError, TypeError) as error:
            raise CaptionerError(f"{path}: not a vocabulary file ({error})") from None
        except OSError as error:
            raise CaptionerError(f"{path}: cannot be read ({error.strerror})") from None
        try:
            return cls(tuple(words), frozenset(recurring))
        except CaptionerError as error:
            raise CaptionerError(f"{path}: {error}") from None


def _recurring(sentences: Iterable[Sequence[str]]) -> frozenset[str]:
    once: Counter[str] = Counter()  # captions that have a word
    twice: Counter[str] = Counter()  # captions that have it more than once
    for tokens in sentences:
        said = Counter(tokens)
        once.update(said.keys())
        twice.update(word for word, n in said.items() if n > 1)
    return frozenset(word for word, n in twice.items() if n >= max(SEVERAL, RECURS * once[word]))
