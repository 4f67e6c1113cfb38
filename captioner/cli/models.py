"""`captioner models`: the available models."""

from __future__ import annotations

import click

from captioner.cli.options import json_option
from captioner.terminal import check_standard_output, say
from captioner.text.json_text import to_json


@click.command(name="models")
@json_option
def command(as_json: bool) -> None:
    """List the available models: size, attention, training data and scores.

    Models are searched for in the folders of the environment variable CAPTIONER_WEIGHTS, in the installed package, in
    weights/ of a checkout, and in weights/ of the current folder. A model that cannot be used is listed with the
    reason.
    """
    from captioner.bundle.model_folders import PUBLISHED, search_path
    from captioner.bundle.model_list import list_models, model_text
    from captioner.installation import REPOSITORY

    check_standard_output()
    entries = list_models()
    if as_json:
        click.echo(to_json(entries, indent=2))
        return
    if not entries:
        folders = ", ".join(str(folder) for folder in search_path())
        say(f"no models in {folders}; set CAPTIONER_WEIGHTS to a folder of bundles")
    for entry in entries:
        click.echo(model_text(entry))
    if entries and (missing := sorted(set(PUBLISHED) - {entry["name"] for entry in entries})):
        where = f"in the folder weights of {REPOSITORY}; set CAPTIONER_WEIGHTS to that folder"
        say(f"note: not installed: {', '.join(missing)}. They are {where}.")
