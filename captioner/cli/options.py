"""Options that several commands share. Each is declared once: its name, its rules and its help text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from captioner.options import BATCH, BackendName, HardAttention, SearchOptions

if TYPE_CHECKING:
    from captioner.captioning import Captioner

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(dir_okay=False, path_type=Path)
EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE_OR_FOLDER = click.Path(path_type=Path)
FAST = "captioner.fast"  # in the context: whether --fast was given


def choice(*names: str) -> click.Choice[str]:
    """One of these names, in upper or lower case."""
    return click.Choice(names, case_sensitive=False)


def complete_model(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """For the shell: the names of the available models, or folders where a path was begun."""
    from captioner.bundle.model_folders import available_models

    names = [name for name, _ in available_models() if name.startswith(begun)]
    return [CompletionItem(name) for name in names] or [CompletionItem(begun, type="dir")]


def complete_list(names: Iterable[str]) -> Callable[..., list[CompletionItem]]:
    """For the shell: names that may be joined with commas."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        before, comma, last = begun.rpartition(",")
        given = before.lower().split(",")
        return [
            CompletionItem(f"{before}{comma}{name}")
            for name in names
            if name.startswith(last.lower()) and name not in given
        ]

    return complete


def picture_arguments(*, required: bool = True) -> Callable[[F], F]:
    """PATH… and --recursive."""
    options: list[Callable[[F], F]] = [
        click.argument("paths", nargs=-1, required=required, metavar="PATH…", type=click.Path()),
        click.option("--recursive", "-r", is_flag=True, help="Include the folders inside each folder."),
    ]
    return lambda command: apply_options(options, command)


def limit_options(command: F) -> F:
    """--pixel-limit, --memory-limit and --seconds-per-picture. `given_limits` collects their values."""
    from captioner.images.limits import MEMORY_LIMIT, PIXEL_LIMIT, SECONDS_PER_PICTURE

    options: list[Callable[[F], F]] = [
        click.option(
            "--pixel-limit",
            type=click.IntRange(1),
            default=PIXEL_LIMIT,
            show_default=True,
            metavar="N",
            help="Refuse pictures with more pixels.",
        ),
        click.option(
            "--memory-limit",
            type=click.IntRange(1),
            default=MEMORY_LIMIT,
            show_default=True,
            metavar="MB",
            help="Megabytes that all pictures being decoded may take; one that needs more alone is refused.",
        ),
        click.option(
            "--seconds-per-picture",
            type=click.FloatRange(0, min_open=True),
            default=SECONDS_PER_PICTURE,
            show_default=True,
            metavar="S",
            help="Give up a picture whose reading takes longer.",
        ),
    ]
    return apply_options(options, command)


def given_limits(values: dict[str, Any]) -> dict[str, Any]:
    """The limits for reading pictures, removed from a command's arguments."""
    return {name: values.pop(name) for name in ("pixel_limit", "memory_limit", "seconds_per_picture")}


def batch_option(command: F) -> F:
    text = "Number of pictures to process at a time."
    return click.option("--batch", type=click.IntRange(1), default=BATCH, show_default=True, metavar="N", help=text)(
        command
    )


def device_option(default: str) -> Callable[[F], F]:
    text = "Device to compute on, such as cpu, cuda or mps."
    return click.option("--device", metavar="DEVICE", show_default=default, help=text)


def model_options(command: F) -> F:
    """--model, --fast, --backend, --device and --threads: the arguments of `Captioner.load`."""
    return apply_options([model_option(), backend_options()], command)


def model_option(*, multiple: bool = False) -> Callable[[F], F]:
    text = "Name or folder of the model; `captioner models` lists the names."
    names = ("--model", "-m", "models") if multiple else ("--model", "-m")
    return click.option(
        *names,
        multiple=multiple,
        default=("default",) if multiple else "default",
        show_default=True,
        metavar="NAME|DIR",
        shell_complete=complete_model,
        help=f"{text} May be repeated; the first is used unless a request names another." if multiple else text,
    )


def backend_options(default: BackendName = "auto") -> Callable[[F], F]:
    """--fast, --backend, --device and --threads."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--fast",
            is_flag=True,
            is_eager=True,  # before --backend, whose value it is
            expose_value=False,
            callback=lambda context, parameter, value: context.meta.update({FAST: value}),
            help="Use the model's 8-bit graphs: about twice as fast, slightly less exact; short for --backend int8.",
        ),
        click.option(
            "--backend",
            type=choice(*get_args(BackendName)),
            default=default,
            show_default=True,
            callback=_backend,
            help="Runtime: onnx, int8 (the model's 8-bit onnx graphs) or torch; auto is onnx on the CPU and torch on "
            "other devices; quick is int8 where the processor and the model are made for it, else auto.",
        ),
        device_option("cpu; with --backend torch, cuda if available"),
        click.option(
            "--threads",
            type=click.IntRange(1),
            metavar="N",
            show_default="one per processor",
            help="Number of CPU threads.",
        ),
    ]
    return lambda command: apply_options(options, command)


def _backend(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not context.meta.get(FAST):
        return value
    given = context.get_parameter_source("backend") is ParameterSource.COMMANDLINE
    if given and value not in ("int8", "quick"):
        raise click.UsageError(f"--fast is --backend int8, not {value}; give one of them")
    return "int8"


def config_options(*, required: bool) -> Callable[[F], F]:
    """--config and --set."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--config",
            required=required,
            type=FILE_OR_FOLDER,
            metavar="FILE",
            help="Config file in YAML; see configs/.",
        ),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar="KEY=VALUE",
            help="Change a setting of the config, for example training.epochs=3; may be repeated.",
        ),
    ]
    return lambda command: apply_options(options, command)


def images_option(*, multiple: bool = False) -> Callable[[F], F]:
    return click.option(
        "--images",
        multiple=multiple,
        type=FILE_OR_FOLDER,
        metavar="DIR",
        show_default="beside the captions",
        help="Folder of the pictures; once, or once per file of captions." if multiple else "Folder of the pictures.",
    )


def captions_format_option(command: F) -> F:
    text = "Format of the captions: coco, karpathy, flickr8k, table or folder."
    return click.option(
        "--format",
        "captions_format",
        metavar="NAME",
        callback=lambda context, parameter, value: value and value.lower(),
        shell_complete=complete_list(("coco", "karpathy", "flickr8k", "table", "folder")),
        show_default="detected from the content",
        help=text,
    )(command)


allow_missing_option = click.option(
    "--allow-missing", is_flag=True, help="Accept that listed pictures are missing, and leave them out."
)
reference_stats_option = click.option(
    "--reference-stats",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Take CIDEr's word frequencies from this file, written by `captioner score --write-reference-stats`.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
onnxruntime_web_option = click.option(
    "--onnxruntime-web",
    type=EXISTING_FOLDER,
    metavar="DIR",
    show_default="from npm",
    help="Folder with the files of the npm package onnxruntime-web, for a machine without npm.",
)
summary_option = click.option(
    "--summary",
    "summary_file",
    type=FILE,
    metavar="FILE",
    help="Write the counts, and what was not captioned and why, as JSON.",
)
overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing output; by default it is kept.")


_FLAGS = {"forbidden": "--forbid", "required": "--require", "allow_unknown": "--allow-unk"}
_WORDS = {
    "forbidden": ("WORD", "A word that must not occur; may be repeated."),
    "required": ("WORD[|WORD]", "A word that must occur, or one of several; may be repeated."),
}


def search_options(*names: str) -> Callable[[F], F]:
    """One option per field of SearchOptions, or for the named fields only. `given_options` collects their values."""
    options: list[Callable[[F], F]] = [
        _search_option(option) for option in fields(SearchOptions) if not names or option.name in names
    ]
    return lambda command: apply_options(options, command)


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


def check_effect(options: dict[str, Any], captioners: Sequence[Captioner]) -> None:
    """Refuse a search option that changes nothing for any of these models."""
    hard = [captioner for captioner in captioners if captioner.backend.hard]
    if "hard_attention" in options and not hard:
        names = " and ".join(each.manifest.name for each in captioners if each.manifest is not None)
        raise click.UsageError(
            f"--hard-attention has no effect: {names or 'the model'} has soft attention; "
            "choose a hard-attention model with --model (`captioner models` tells which are)"
        )
    samples = options.get("sample") or any(
        (options.get("hard_attention") or captioner.defaults.hard_attention) == "sampled" for captioner in hard
    )
    if "seed" in options and not samples:
        raise click.UsageError(
            "--seed has no effect without sampling; give --sample, or --hard-attention sampled with a hard model"
        )


def option_flag(name: str) -> str:
    """The flag of a field of SearchOptions."""
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def _search_option(option: Field[Any]) -> Callable[[F], F]:
    """A click option for a field. All defaults are None, because the model has defaults of its own."""
    name, default = option.name, option.default
    flag = option_flag(name)
    text = option.metadata["description"]
    if name in _WORDS:
        metavar, text = _WORDS[name]
        return click.option(flag, name, multiple=True, metavar=metavar, help=text)
    if name == "hard_attention":
        return click.option(flag, name, type=choice(*get_args(HardAttention)), help=text)
    if isinstance(default, bool):
        return click.option(flag, name, is_flag=True, default=None, help=text)
    least, most = option.metadata["least"], option.metadata["most"]
    if isinstance(default, int):
        return click.option(flag, name, type=click.IntRange(least, most), metavar="N", help=text)
    limits = float if least is None and most is None else click.FloatRange(least, most)
    return click.option(flag, name, type=limits, metavar="X", help=text)


def apply_options(options: list[Callable[[F], F]], command: F) -> F:
    """The command with these options, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command
