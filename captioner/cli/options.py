"""Options that several commands share: which model, and how to search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_MODEL = [
    click.option(
        "--model", "-m", default="default", show_default=True, metavar="NAME|DIR", help="A model by name or folder."
    ),
    click.option(
        "--backend",
        type=click.Choice(["auto", "onnx", "int8", "torch"]),
        default="auto",
        show_default=True,
        help="auto is onnx, unless a device other than the CPU is asked for. int8 is onnx with the model's 8-bit "
        "graphs: quicker, a little less exact.",
    ),
    click.option("--device", metavar="DEVICE", help="cpu, or a device of torch such as cuda."),
    click.option("--threads", type=click.IntRange(1), metavar="N", help="Processors to use; all by default."),
]

_SEARCH = [
    click.option(
        "--beam", type=click.IntRange(1), metavar="N", help="Hypotheses kept; 1 is greedy. The model's own by default."
    ),
    click.option("--n-best", type=click.IntRange(1), metavar="N", help="Captions for each picture."),
    click.option(
        "--length-power",
        type=float,
        metavar="P",
        help="score = log-probability / length ** P. The model's own by default.",
    ),
    click.option("--min-length", type=click.IntRange(0), metavar="N", help="Fewest words."),
    click.option("--max-length", type=click.IntRange(1), metavar="N", help="Most words."),
    click.option(
        "--groups",
        type=click.IntRange(1),
        metavar="N",
        help="Diverse search: groups in the beam that avoid each other's words.",
    ),
    click.option(
        "--diversity", type=float, metavar="X", help="What a word loses for each earlier group that just took it."
    ),
    click.option("--sample", is_flag=True, default=None, help="Draw words instead of searching for the best."),
    click.option(
        "--temperature", type=float, metavar="T", help="Of the draws: under 1 likelier words, over 1 wilder ones."
    ),
    click.option("--top-k", type=click.IntRange(0), metavar="K", help="Draw from the K likeliest words."),
    click.option(
        "--top-p", type=float, metavar="P", help="Draw from the likeliest words that hold P of the probability."
    ),
    click.option("--seed", type=click.IntRange(0), metavar="N", help="Of all draws."),
    click.option(
        "--forbid", "forbidden", multiple=True, metavar="WORD", help="A word that may not occur; may be repeated."
    ),
    click.option(
        "--require",
        "required",
        multiple=True,
        metavar="WORD[|WORD]",
        help="A word that must occur, or one of several; may be repeated.",
    ),
    click.option("--no-repeat", type=click.IntRange(0), metavar="N", help="No sequence of N words twice."),
    click.option(
        "--repeat-penalty",
        type=float,
        metavar="X",
        help="What a word said again loses; a, of and others that recur freely in captions lose nothing. The model's "
        "own by default.",
    ),
    click.option(
        "--allow-unk", "allow_unknown", is_flag=True, default=None, help="May say <unk> for a word it has no name for."
    ),
    click.option(
        "--look",
        type=click.Choice(["expected", "argmax", "sampled"]),
        help="How a hard model looks. The model's own by default.",
    ),
]

SEARCH_NAMES = (
    "beam", "n_best", "length_power", "min_length", "max_length", "groups", "diversity", "sample", "temperature",
    "top_k", "top_p", "seed", "forbidden", "required", "no_repeat", "repeat_penalty",
    "allow_unknown", "look",
)  # fmt: skip


def model_options(command: F) -> F:
    """--model, --backend, --device, --threads."""
    for option in reversed(_MODEL):
        command = option(command)
    return command


def search_options(command: F) -> F:
    """Everything of SearchOptions; `asked` gathers what was given."""
    for option in reversed(_SEARCH):
        command = option(command)
    return command


def asked(values: dict[str, Any]) -> dict[str, Any]:
    """Take the search options that were given out of a command's arguments."""
    given = {name: values.pop(name) for name in SEARCH_NAMES}
    given = {name: value for name, value in given.items() if value not in (None, ())}
    if not given.get("sample"):
        for name in ("temperature", "top_k", "top_p"):
            if name in given:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --sample")
    if "diversity" in given and "groups" not in given:
        raise click.UsageError("--diversity is between the groups of a beam: it needs --groups")
    return given
