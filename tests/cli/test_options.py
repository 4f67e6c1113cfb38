"""The options of all commands: every one has a help text, and the same name means the same in every command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields

import click
import pytest

from captioner.cli import COMMANDS, main
from captioner.images.limits import PIXEL_LIMIT
from captioner.options import BATCH, BackendName, SearchOptions

# Options whose text depends on the command, with the reason.
DIFFERENT = {
    "--compare": "overlay compares models, score compares result files",
    "--format": "what caption and overlay write is not what data and evaluate read",
    "--from": "caption takes captions from a file, train begins with the weights of a model",
    "--images": "data shapes: how many to draw; elsewhere: where the pictures are",
    "--licence": "train has it only where it also exports",
    "--max-length": "data check counts the words of references, the search those of its captions",
    "--model": "serve takes several",
    "--output": "a file or a folder",
    "--results": "score reads such a file, evaluate writes it",
    "--resume": "caption and overlay continue an output each in its way, train continues a run",
    "--seed": "of the search, of the bootstrap, of the synthetic pictures",
    "--style": "overlay: how maps are drawn; caption: how captions are written",
    "--split": "evaluate needs one split, data check takes several",
    "--web": "export writes such a folder, serve serves it",
    "--words": "caption adds values of all words, overlay draws some of them",
}


def commands(group: click.Group, name: str = "captioner") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for part in group.list_commands(context):
        command = group.get_command(context, part)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {part}")
        else:
            yield f"{name} {part}", command


COMMAND_OPTIONS = [
    (name, option)
    for name, command in commands(main)
    for option in command.params
    if isinstance(option, click.Option) and not isinstance(option.type, click.types.UnprocessedParamType)
]


def test_every_command_is_looked_at():
    assert {name.split()[1] for name, _ in COMMAND_OPTIONS} == set(COMMANDS)


@pytest.mark.parametrize(("command", "option"), COMMAND_OPTIONS, ids=lambda value: str(getattr(value, "name", value)))
def test_every_option_has_a_help_text_of_whole_sentences(command: str, option: click.Option):
    assert option.help, f"{command} {option.opts[0]}"
    assert option.help.endswith("."), option.help
    assert "[default" not in option.help, "use show_default"


def test_an_option_of_several_commands_has_one_text_and_one_short_name():
    texts, names = defaultdict(set), defaultdict(set)
    for _, option in COMMAND_OPTIONS:
        texts[option.opts[0]].add(option.help)
        names[option.opts[0]].add(tuple(option.opts))
    assert {name for name, different in texts.items() if len(different) > 1} <= set(DIFFERENT)
    # -f is for the formats that are written. The --output of train is also called --run, its older name.
    assert {name for name, different in names.items() if len(different) > 1} <= {"--format", "--output"}


def test_names_are_chosen_in_upper_or_lower_case():
    for command, option in COMMAND_OPTIONS:
        if isinstance(option.type, click.Choice):
            assert not option.type.case_sensitive, f"{command} {option.opts[0]}"


def test_the_search_options_are_the_fields_of_search_options():
    context = click.Context(main)
    for name in ("caption", "overlay"):
        command = main.get_command(context, name)
        assert command is not None
        names = {parameter.name for parameter in command.params}
        assert {field.name for field in fields(SearchOptions)} <= names


def test_defaults_are_those_of_the_library():
    context = click.Context(main)
    caption = main.get_command(context, "caption")
    assert caption is not None
    options = {parameter.name: parameter for parameter in caption.params}
    assert options["batch"].default == BATCH
    assert options["pixel_limit"].default == PIXEL_LIMIT
    assert tuple(options["backend"].type.choices) == BackendName.__args__  # type: ignore[attr-defined]
