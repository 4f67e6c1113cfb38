"""SearchOptions: the settings of a search, declared once.

The manifest of a bundle, the validation settings of a training run, the command line and the keyword arguments of
`Captioner` all use these fields, with their descriptions and limits.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, TypedDict, TypeVar, get_args

from captioner.errors import UsageError, brief, unknown

HardAttention = Literal["expected", "argmax", "sampled"]
BackendName = Literal["auto", "onnx", "int8", "torch", "quick"]  # see `Captioner.load`
BackendLabel = Literal["onnx", "int8", "torch"]  # what computed a caption; outputs name it
BATCH = 32  # pictures searched together: enough for efficient matrix products, few enough for early results

# Names of version 0.1, which bundles, configs and evaluations of that version still have.
RENAMED = {"look": "hard_attention", "maximum_length": "max_length"}

T = TypeVar("T")


def _setting(default: T, description: str, least: float | None = None, most: float | None = None) -> T:
    """A field with a description, for help texts and the reference of settings, and its limits (inclusive)."""
    return field(default=default, metadata={"description": description, "least": least, "most": most})


@dataclass(frozen=True)
class SearchOptions:
    """How to search for captions. Lengths count words, without the end token."""

    beam: int = _setting(3, "Beam width: hypotheses kept per picture. 1 is greedy search.", 1)
    n_best: int = _setting(1, "Captions per picture, best first.", 1)
    length_power: float = _setting(
        1.0, "Length normalization: score = log-probability / length ** power. The end token counts.", 0, 10
    )
    min_length: int = _setting(1, "Fewest words of a caption.", 0)
    max_length: int = _setting(20, "Most words of a caption.", 1, 1000)
    groups: int = _setting(1, "Diverse beam search: number of groups that avoid each other's words.", 1)
    diversity: float = _setting(
        0.5, "Penalty for a word per earlier group that has just taken it (log-probability).", 0
    )
    sample: bool = _setting(False, "Sample words instead of searching for the best caption.")
    temperature: float = _setting(1.0, "Temperature of sampling: below 1 likelier words, above 1 more varied ones.")
    top_k: int = _setting(0, "Sample from the k likeliest words only; 0 samples from all.", 0)
    top_p: float = _setting(1.0, "Sample from the likeliest words that together have this probability.", None, 1)
    seed: int = _setting(0, "Seed for sampling.", 0, 2**63 - 1)
    forbidden: tuple[str, ...] = _setting((), "Words that must not occur.")
    required: tuple[tuple[str, ...], ...] = _setting(
        (), "Words that must occur. An entry with several words is met by any one of them."
    )
    no_repeat: int = _setting(0, "No sequence of this many words occurs twice; 0 is off.", 0)
    repeat_penalty: float = _setting(
        0.0,
        "Penalty for repeating a word (log-probability). Words that often repeat in captions, such as 'a', are exempt.",
        0,
        100,
    )
    allow_unknown: bool = _setting(False, "Allow the unknown-word token `<unk>` in captions.")
    hard_attention: HardAttention | None = _setting(  # noqa: RUF009 (ruff takes the type for a mutable one)
        None,
        "How a hard-attention model attends: to the expectation over all cells, to the likeliest cell (argmax), or to "
        "a sampled cell.",
    )

    def __post_init__(self) -> None:
        for option in fields(self):
            value = _checked(option, getattr(self, option.name))
            object.__setattr__(self, option.name, value)
        _require(
            self.sample or self.n_best <= self.beam,
            f"n_best {self.n_best} needs a beam of {self.n_best} or more, not {self.beam}",
        )
        _require(
            self.min_length <= self.max_length,
            f"no caption has at least {self.min_length} and at most {self.max_length} words",
        )
        _require(
            self.groups <= self.beam and self.beam % self.groups == 0,
            f"a beam of {self.beam} cannot be divided into {self.groups} equal groups",
        )
        _require(
            self.temperature > 0,
            f"temperature {self.temperature} is not positive; to get the likeliest words, don't sample",
        )
        _require(self.top_p > 0, f"top_p {self.top_p} is not above 0")
        _require(
            not (self.sample and self.required),
            "required words need beam search, which sampling replaces; leave out one of the two",
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SearchOptions:
        """Options from a table of names and values. Missing ones take their defaults; old names are understood."""
        options = {RENAMED.get(name, name): value for name, value in values.items()}
        check_names(options)
        return cls(**options)

    @property
    def summary(self) -> str:
        """The settings that decide scores, in a few words: "beam 5, length power 0.5, repeat penalty 2"."""
        penalty = f", repeat penalty {self.repeat_penalty:g}" if self.repeat_penalty else ""
        attends = f", hard attention {self.hard_attention}" if self.hard_attention else ""
        return f"beam {self.beam}, length power {self.length_power:g}{penalty}{attends}"


class SearchKeywords(TypedDict, total=False):
    """The fields of SearchOptions as keyword arguments, for type checkers. A test compares the two."""

    beam: int
    n_best: int
    length_power: float
    min_length: int
    max_length: int
    groups: int
    diversity: float
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    forbidden: str | Sequence[str]
    required: str | Sequence[str | Sequence[str]]
    no_repeat: int
    repeat_penalty: float
    allow_unknown: bool
    hard_attention: HardAttention | None


def check_names(options: Mapping[str, Any]) -> None:
    """Refuse a name that is no search option."""
    names = [option.name for option in fields(SearchOptions)]
    for name in options:
        if name not in names:
            raise unknown("search option", name, names)


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise UsageError(sentence)


def _checked(option: Field[Any], value: Any) -> Any:
    """A value of the field's own type and within its limits."""
    name, default = option.name, option.default
    if name == "required":
        return _alternatives(value)
    if name == "forbidden":
        return _words(name, value)
    if name == "hard_attention":
        if value is not None and value not in get_args(HardAttention):
            raise unknown("hard_attention", str(value)[:100], get_args(HardAttention))
        return value
    if isinstance(default, bool):
        _require(isinstance(value, bool), f"{name} must be True or False, not {brief(value)}")
        return value
    number = numbers.Integral if isinstance(default, int) else numbers.Real
    _require(
        isinstance(value, number) and not isinstance(value, bool),
        f"{name} must be a {'whole number' if isinstance(default, int) else 'number'}, not {brief(value)}",
    )
    try:
        value = int(value) if isinstance(default, int) else float(value)
    except OverflowError:  # a whole number of hundreds of digits
        value = math.inf
    least, most = option.metadata["least"], option.metadata["most"]
    _require(isinstance(value, int) or math.isfinite(value), f"{name} must be a finite number, not {brief(value)}")
    _require(least is None or value >= least, f"{name} {brief(value)} is too small; the least is {least}")
    _require(most is None or value <= most, f"{name} {brief(value)} is too large; the most is {most}")
    return value


def _words(name: str, value: Any) -> tuple[str, ...]:
    """A word or several, as a tuple."""
    words = (value,) if isinstance(value, str) else value
    _require(
        isinstance(words, Sequence) and all(isinstance(word, str) for word in words),
        f"{name} must be a word or a list of words, not {brief(value)}",
    )
    return tuple(words)


def _alternatives(value: Any) -> tuple[tuple[str, ...], ...]:
    """Required words: "cat", ["cat", "dog"], "cat|kitten" for one of the two, or [["cat", "kitten"], ["dog"]]."""
    entries = [value] if isinstance(value, str) else value
    _require(isinstance(entries, Sequence), f"required must be a word or a list of words, not {brief(value)}")
    return tuple(tuple(entry.split("|")) if isinstance(entry, str) else _words("required", entry) for entry in entries)
