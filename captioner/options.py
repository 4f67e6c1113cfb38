"""What a search is asked for (SearchOptions) and what it finds (Hypothesis). Plain records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UsageError

Look = Literal["expected", "argmax", "sampled"]  # how a hard model turns alpha into a context


@dataclass(frozen=True)
class SearchOptions:
    """How to look for a caption. Lengths count words, without the end token."""

    beam: int = 3  # hypotheses kept an image; 1 is greedy search
    n_best: int = 1  # captions returned an image, best first (draws an image when sampling)
    length_power: float = 1.0  # score = sum of log-probabilities / length ** power, the end token counted
    min_length: int = 1
    max_length: int = 20
    groups: int = 1  # diverse search: the beam is cut into groups that avoid each other's words
    diversity: float = 0.5  # what a word loses each time an earlier group has just taken it
    sample: bool = False  # draw words instead of searching for the best
    temperature: float = 1.0
    top_k: int = 0  # draw from the k likeliest words only; 0: from all
    top_p: float = 1.0  # draw from the likeliest words that together hold this much probability
    seed: int = 0
    forbidden: tuple[str, ...] = ()
    required: tuple[tuple[str, ...], ...] = ()  # each must occur by at least one of its words
    no_repeat: int = 0  # no sequence of so many words occurs twice; 0: off
    repeat_penalty: float = 0.0  # what a word said again loses, unless the vocabulary has it among those that recur
    allow_unknown: bool = False  # may say <unk>
    look: Look | None = None  # how a hard model looks; None: its own default

    def __post_init__(self) -> None:
        def check(met: bool, sentence: str) -> None:
            if not met:
                raise UsageError(sentence)

        check(self.beam >= 1, f"a beam of {self.beam} holds no hypothesis; give 1 (greedy) or more")
        check(self.n_best >= 1, f"an n-best list of {self.n_best} holds no caption; give 1 or more")
        check(
            self.sample or self.n_best <= self.beam,
            f"an n-best list of {self.n_best} needs a beam of {self.n_best} or more, not {self.beam}",
        )
        check(0 <= self.length_power <= 10, f"length power {self.length_power} is not in 0..10")
        check(
            0 <= self.min_length <= self.max_length,
            f"no caption has at least {self.min_length} and at most {self.max_length} words",
        )
        check(1 <= self.max_length <= 1000, f"maximum length {self.max_length} is not in 1..1000")
        check(
            1 <= self.groups <= self.beam and self.beam % self.groups == 0,
            f"a beam of {self.beam} cannot be cut into {self.groups} equal groups",
        )
        check(self.diversity >= 0, f"diversity {self.diversity} is negative")
        check(
            self.temperature > 0,
            f"temperature {self.temperature} is not positive; for the best word, don't sample",
        )
        check(self.top_k >= 0, f"top-k {self.top_k} is negative; 0 draws from all words")
        check(0 < self.top_p <= 1, f"top-p {self.top_p} is not in 0..1")
        check(self.seed >= 0, f"seed {self.seed} is negative")
        check(self.no_repeat >= 0, f"no-repeat {self.no_repeat} is negative; 0 turns it off")
        check(0 <= self.repeat_penalty <= 100, f"repeat penalty {self.repeat_penalty} is not in 0..100")
        check(
            not (self.sample and self.required),
            "words that must occur are found by beam search, not by sampling: leave one of the two out",
        )


@dataclass(frozen=True)
class Hypothesis:
    """A word sequence with what the model told at each step.

    The arrays have a row a word and, where the sentence ended, one more for the end token.
    """

    words: tuple[int, ...]
    ended: bool  # False where the length limit cut the sentence
    score: float  # what it is ranked by: of the log-probabilities, less what words said again lose in a beam
    log_probabilities: NDArray[np.float32]  # (n,)
    alphas: NDArray[np.float32]  # (n, L)
    gates: NDArray[np.float32]  # (n,)
    cells: NDArray[np.int64] | None  # (n,): the cells that a hard model selected


def search_note(beam: int, length_power: float, repeat_penalty: float) -> str:
    """What a line about scores says of the search; nothing of a repeat penalty where there is none."""
    penalty = f", repeat penalty {repeat_penalty:g}" if repeat_penalty else ""
    return f"beam {beam}, length power {length_power:g}{penalty}"


def normalised(total: float, length: int, power: float) -> float:
    """What hypotheses of different lengths are ranked by; the length counts the end token."""
    return float(total / max(length, 1) ** power)
