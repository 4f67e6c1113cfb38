"""Constraints on captions: which words may come next, and which required words have occurred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.errors import CaptionerError, UsageError
from captioner.options import SearchOptions
from captioner.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Constraints:
    """The constraints of SearchOptions as word numbers.

    There are C requirements. Each is met by any of its words; m words meet at least one of them.
    """

    never: NDArray[np.int64]  # words that must not occur
    wanted: NDArray[np.int64]  # (m,)
    required: NDArray[np.bool_]  # (C, m): which wanted words meet which requirement
    min_length: int
    no_repeat: int
    penalty: NDArray[np.float32]  # (V,): penalty for repeating a word
    end: int

    @classmethod
    def of(cls, options: SearchOptions, vocabulary: Vocabulary) -> Constraints:
        """Look up the words. A forbidden word that the model doesn't know is no error, because it never occurs."""
        forbidden = {vocabulary.number(word) for word in options.forbidden if knows(vocabulary, word)}
        forbidden -= {vocabulary.end}
        try:
            required = [[vocabulary.number(word) for word in words] for words in options.required]
        except CaptionerError as error:
            raise UsageError(str(error)) from None
        for words, numbers in zip(options.required, required, strict=True):
            if not numbers:
                raise UsageError("an empty list of required words cannot be satisfied")
            if forbidden.issuperset(numbers):
                raise UsageError(f"{' or '.join(words)} is both required and forbidden")
        wanted = sorted({number for numbers in required for number in numbers})
        special = {vocabulary.pad, vocabulary.start}
        if not options.allow_unknown:
            special.add(vocabulary.unk)
        if special.intersection(wanted) or vocabulary.end in wanted:
            raise UsageError("special tokens cannot be required")
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
            raise UsageError(f"{len(required)} required words do not fit into {options.max_length} words")
        return constraints

    def words_needed(self, met: int) -> int:
        """The least number of further words that could meet all requirements; one word may meet several."""
        most = int(self.required.sum(axis=0).max(initial=1))
        return -(-(len(self.required) - met) // most)

    def mask(
        self,
        log_probabilities: NDArray[np.float32],  # (B, K, V), written to
        words: NDArray[np.int64],  # (B, K, t): the words of each hypothesis so far
        met: NDArray[np.bool_],  # (B, K, C): the requirements that are met
    ) -> None:
        """Set words that must not come next to minus infinity, and subtract the penalty from repeated words."""
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
        repeated = words[image, slot, at]
        # Once per word, however often it has occurred: numpy writes an element with several indices once.
        log_probabilities[image, slot, repeated] -= self.penalty[repeated]

    def penalties(self, previous: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.float32]:
        """The penalties that `mask` subtracted from words (B, K), after the previous words (B, K, t)."""
        penalties: NDArray[np.float32] = self.penalty[words] * (previous == words[:, :, None]).any(axis=2)
        return penalties

    def gain(self, met: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many more requirements each wanted word would meet: (B, K, C) -> (B, K, m)."""
        return (~met).astype(np.int64) @ self.required.astype(np.int64)

    def meet(self, met: NDArray[np.bool_], words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The requirements that are met after these words (B, K): (B, K, C)."""
        is_wanted = words[:, :, None] == self.wanted  # (B, K, m)
        met_now: NDArray[np.bool_] = met | ((is_wanted.astype(np.int64) @ self.required.T.astype(np.int64)) > 0)
        return met_now


def knows(vocabulary: Vocabulary, word: str) -> bool:
    """Whether a word that the user named is in the vocabulary."""
    try:
        vocabulary.number(word)
    except CaptionerError:
        return False
    return True
