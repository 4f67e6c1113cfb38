"""Options that several commands share: which model, and how to search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, TypeVar, get_args

import click

from captioner.options import HardAttention, SearchOptions

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

_FLAGS = {"forbidden": "--forbid", "required": "--require", "allow_unknown": "--allow-unk"}
_WORDS = {
    "forbidden": ("WORD", "A word that must not occur; may be repeated."),
    "required": ("WORD[|WORD]", "A word that must occur, or one of several; may be repeated."),
}


def model_options(command: F) -> F:
    """--model, --backend, --device, --threads."""
    for option in reversed(_MODEL):
        command = option(command)
    return command


def search_options(*names: str) -> Callable[[F], F]:
    """One option per field of SearchOptions, or for the named fields only. `given_options` collects their values."""
    options = [option for option in fields(SearchOptions) if not names or option.name in names]

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = _search_option(option)(command)
        return command

    return decorate


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """The search options that the user gave, removed from a command's arguments."""
    names = [option.name for option in fields(SearchOptions) if option.name in values]
    given = {name: values.pop(name) for name in names}
    given = {name: value for name, value in given.items() if value not in (None, ())}
    if not given.get("sample"):
        for name in ("temperature", "top_k", "top_p"):
            if name in given:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --sample")
    if "diversity" in given and "groups" not in given:
        raise click.UsageError("--diversity applies between the groups of a beam: it needs --groups")
    return given


def _search_option(option: Field[Any]) -> Callable[[F], F]:
    """A click option for a field. All defaults are None, because the model has defaults of its own."""
    name, default = option.name, option.default
    flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
    text = option.metadata["description"]
    if name in _WORDS:
        metavar, text = _WORDS[name]
        return click.option(flag, name, multiple=True, metavar=metavar, help=text)
    if name == "hard_attention":
        return click.option(flag, name, type=click.Choice(get_args(HardAttention)), help=text)
    if isinstance(default, bool):
        return click.option(flag, name, is_flag=True, default=None, help=text)
    least, most = option.metadata["least"], option.metadata["most"]
    if isinstance(default, int):
        return click.option(flag, name, type=click.IntRange(least, most), metavar="N", help=text)
    return click.option(flag, name, type=click.FloatRange(least, most), metavar="X", help=text)
