"""Vocabulary: the words of a model and their numbers."""

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
# A word is recurring if at least this share of the captions that contain it contain it twice, and this many captions
# do: a single caption proves nothing about a rare word.
RECURRING_SHARE, RECURRING_CAPTIONS = 0.05, 3


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model can read and write, special tokens first."""

    words: tuple[str, ...]
    recurring: frozenset[str] = frozenset()  # words that often occur twice in a caption, such as "a"
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    pad, start, end, unk = 0, 1, 2, 3

    def __post_init__(self) -> None:
        if self.words[:4] != SPECIAL:
            raise CaptionerError(f"a vocabulary begins with {SPECIAL}, not {self.words[:4]}")
        object.__setattr__(self, "index", {word: i for i, word in enumerate(self.words)})
        if len(self.index) != len(self.words):
            duplicates = [word for word, count in Counter(self.words).items() if count > 1]
            raise CaptionerError(f"the vocabulary lists a word twice: {', '.join(duplicates[:5])}")
        missing = sorted(self.recurring.difference(self.words))
        if missing:
            raise CaptionerError(f"`recurring` has a word that `words` lacks: {missing[0]}")

    @classmethod
    def build(cls, captions: Iterable[str], *, minimum_count: int = 5) -> Vocabulary:
        """The words of captions (of the training split), most frequent first, ties in alphabetical order."""
        sentences = [tokenize(caption) for caption in captions]
        counts = Counter(token for tokens in sentences for token in tokens)
        for word in SPECIAL:  # text of a caption that spells a special token is not a word
            counts.pop(word, None)
        frequent = [word for word, count in counts.items() if count >= minimum_count]
        words = sorted(frequent, key=lambda word: (-counts[word], word))
        return cls(SPECIAL + tuple(words), _recurring(sentences).intersection(words))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.index

    def encode(self, caption: str) -> list[int]:
        """Word numbers of a caption, without start and end. Unknown words become `<unk>`.

        Text that spells a special token becomes `<unk>` too, so a caption can't end itself early.
        """
        numbers = [self.index.get(token, self.unk) for token in tokenize(caption)]
        return [number if number >= len(SPECIAL) else self.unk for number in numbers]

    def decode(self, numbers: Sequence[int]) -> str:
        """The words up to the end token, without special tokens except `<unk>`."""
        words = []
        for number in numbers:
            if number == self.end:
                break
            if number not in (self.pad, self.start):
                words.append(self.words[number])
        return " ".join(words)

    def number(self, word: str) -> int:
        """The number of a word that the user named. For an unknown word the error suggests similar ones."""
        tokens = tokenize(word)
        for candidate in (tokens[0] if len(tokens) == 1 else word, word):
            number = self.index.get(candidate, self.unk)
            if number >= len(SPECIAL):
                return number
        similar = nearest(word.lower(), self.words[4:], 3)
        hint = f" Similar words: {', '.join(similar)}." if similar else ""
        raise CaptionerError(f"the word {word!r} is not in the model's vocabulary.{hint}")

    def save(self, path: Path) -> None:
        content = {"words": list(self.words), "recurring": sorted(self.recurring)}
        path.write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            words, recurring = content["words"], content["recurring"]
            for name, entries in (("words", words), ("recurring", recurring)):
                if not isinstance(entries, list) or not all(isinstance(word, str) for word in entries):
                    raise TypeError(f"`{name}` is not a list of words")
        except KeyError as error:
            raise CaptionerError(f"{path}: not a vocabulary file (it has no entry {error})") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise CaptionerError(f"{path}: not a vocabulary file ({error})") from None
        except OSError as error:
            raise CaptionerError(f"{path}: cannot be read ({error.strerror})") from None
        try:
            return cls(tuple(words), frozenset(recurring))
        except CaptionerError as error:
            raise CaptionerError(f"{path}: {error}") from None


def _recurring(sentences: Iterable[Sequence[str]]) -> frozenset[str]:
    once: Counter[str] = Counter()  # captions that contain a word
    twice: Counter[str] = Counter()  # captions that contain it more than once
    for tokens in sentences:
        counts = Counter(tokens)
        once.update(counts.keys())
        twice.update(word for word, count in counts.items() if count > 1)
    return frozenset(
        word for word, count in twice.items() if count >= max(RECURRING_CAPTIONS, RECURRING_SHARE * once[word])
    )
