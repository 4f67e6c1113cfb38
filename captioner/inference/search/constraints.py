"""Constraints on captions: which words may come next, and how far the words that must occur have come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.errors import CaptionerError, UsageError
from captioner.options import SearchOptions
from captioner.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Constraints:
    """The constraints of SearchOptions in word numbers.

    `required` is a table of C disjunctions over the m words that occur in any of them.
    """

    never: NDArray[np.int64]  # words that may not be said at all
    wanted: NDArray[np.int64]  # (m,)
    required: NDArray[np.bool_]  # (C, m)
    min_length: int
    no_repeat: int
    penalty: NDArray[np.float32]  # (V,): what each word loses once it has been said
    end: int

    @classmethod
    def of(cls, options: SearchOptions, vocabulary: Vocabulary) -> Constraints:
        """Look the words up; to forbid one that the model doesn't know is no error: it is met already."""
        forbidden = {vocabulary.number(word) for word in options.forbidden if knows(vocabulary, word)}
        forbidden -= {vocabulary.end}
        try:
            required = [[vocabulary.number(word) for word in words] for words in options.required]
        except CaptionerError as error:
            raise UsageError(str(error)) from None
        for words, numbers in zip(options.required, required, strict=True):
            if not numbers:
                raise UsageError("an empty list of words that must occur cannot be met")
            if forbidden.issuperset(numbers):
                raise UsageError(f"{' or '.join(words)} must occur and is forbidden too")
        wanted = sorted({number for numbers in required for number in numbers})
        special = {vocabulary.pad, vocabulary.start}
        if not options.allow_unknown:
            special.add(vocabulary.unk)
        if special.intersection(wanted) or vocabulary.end in wanted:
            raise UsageError("special tokens cannot be required to occur")
        penalty = np.full(len(vocabulary), options.repeat_penalty, np.float32)
        penalty[[vocabulary.index[word] for word in vocabulary.recurring]] = 0
        constraints = cls(
            never=np.array(sorted(special | forbidden), np.int64),
            wanted=np.array(wanted, np.int64),
            required=np.array([[w in numbers for w in wanted] for numbers in required], np.bool_).reshape(
                len(required), len(wanted)
            ),
            min_length=options.min_length,
            no_repeat=options.no_repeat,
            penalty=penalty,
            end=vocabulary.end,
        )
        if constraints.words_needed(0) > options.max_length:
            raise UsageError(f"{len(required)} words that must occur don't fit in {options.max_length} words")
        return constraints

    def words_needed(self, met: int) -> int:
        """The fewest further words that could meet all constraints, for a word may meet several at once."""
        most = int(self.required.sum(axis=0).max(initial=1))
        return -(-(len(self.required) - met) // most)

    def mask(
        self,
        log_probabilities: NDArray[np.float32],  # (B, K, V), written to
        words: NDArray[np.int64],  # (B, K, t): what each hypothesis has said
        met: NDArray[np.bool_],  # (B, K, C): which of the words that must occur have
    ) -> None:
        """Give minus infinity to every word that may not come next, and less to those that should not come again."""
        log_probabilities[:, :, self.never] = -np.inf
        if words.shape[2] < self.min_length:
            log_probabilities[:, :, self.end] = -np.inf
        elif len(self.required):
            log_probabilities[:, :, self.end][~met.all(axis=2)] = -np.inf
        n = self.no_repeat
        if n and words.shape[2] >= n:
            windows = np.lib.stride_tricks.sliding_window_view(words, n, axis=2)  # (B, K, t - n + 1, n)
            tail = words[:, :, None, words.shape[2] - n + 1 :]  # the last n - 1 words
            image, slot, at = np.nonzero((windows[..., :-1] == tail).all(axis=3))
            log_probabilities[image, slot, windows[image, slot, at, n - 1]] = -np.inf
        image, slot, at = np.nonzero(self.penalty[words])
        again = words[image, slot, at]
        log_probabilities[image, slot, again] -= self.penalty[again]  # once, however often a word has been said

    def lost(self, said: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.float32]:
        """What `mask` took from words (B, K) of hypotheses that had said (B, K, t)."""
        lost: NDArray[np.float32] = self.penalty[words] * (said == words[:, :, None]).any(axis=2)
        return lost

    def gain(self, met: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many more constraints each wanted word would meet: (B, K, C) -> (B, K, m)."""
        return (~met).astype(np.int64) @ self.required.astype(np.int64)

    def meet(self, met: NDArray[np.bool_], words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """What is met once these words (B, K) are said too, (B, K, C)."""
        said = words[:, :, None] == self.wanted  # (B, K, m)
        met_now: NDArray[np.bool_] = met | ((said.astype(np.int64) @ self.required.T.astype(np.int64)) > 0)
        return met_now


def knows(vocabulary: Vocabulary, word: str) -> bool:
    """Whether the model can say a word that a user named."""
    try:
        vocabulary.number(word)
    except CaptionerError:
        return False
    return True
