"""Options of what is written to photos and beside them, and of how captions are worded."""

from __future__ import annotations

from collections.abc import Callable

import click

from captioner.cli.options import F, apply_options, choice


def sidecar_options(command: F) -> F:
    """--sidecar and the options of sidecars."""
    from captioner.files.existing import EXISTING

    options: list[Callable[[F], F]] = [
        click.option("--sidecar", is_flag=True, help="Also write a text file beside each photo: photo.txt."),
        click.option(
            "--sidecar-extension",
            default=".txt",
            show_default=True,
            metavar="EXT",
            help="Extension of the sidecars, such as .txt or .caption.",
        ),
        click.option(
            "--existing",
            type=choice(*EXISTING),
            show_default="keep; overwrite with --overwrite",
            help="What to do with a sidecar that exists: keep it, replace it, or add the caption at its end or start.",
        ),
    ]
    return apply_options(options, command)


def metadata_options(command: F) -> F:
    """--write-metadata and --xmp-sidecar."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--write-metadata",
            is_flag=True,
            help="Also write the caption into each photo, as description and alternative text; keeps existing ones.",
        ),
        click.option(
            "--xmp-sidecar",
            is_flag=True,
            help="Also write the caption to photo.xmp beside each photo, for raw files and photos not to be changed.",
        ),
    ]
    return apply_options(options, command)


def wording_options(command: F) -> F:
    """--style, --prefix and --suffix: the arguments of `Wording`."""
    from captioner.writers.wording import STYLES

    options: list[Callable[[F], F]] = [
        click.option(
            "--style",
            type=choice(*STYLES),
            default="sentence",
            show_default=True,
            help="Captions in text and sidecars: a sentence with capital and full stop, or the model's plain words.",
        ),
        click.option("--prefix", default="", metavar="TEXT", help="Text before each caption in text and sidecars."),
        click.option("--suffix", default="", metavar="TEXT", help="Text after each caption in text and sidecars."),
    ]
    return apply_options(options, command)


def unsure_options(command: F) -> F:
    """--min-confidence, --unsure and --unsure-text."""
    from captioner.writers.wording import UNSURE, UNSURE_TEXT

    options: list[Callable[[F], F]] = [
        click.option(
            "--min-confidence",
            type=click.FloatRange(0, 1),
            metavar="P",
            help="Treat a caption as unsure (see --unsure) if its confidence, the "
            "expected share of its content words that are right, is lower.",
        ),
        click.option(
            "--unsure",
            type=choice(*UNSURE),
            show_default="mark",
            help="Leave unsure captions out, mark them with a third column '?', or replace them by --unsure-text.",
        ),
        click.option(
            "--unsure-text",
            default=UNSURE_TEXT,
            show_default=True,
            metavar="TEXT",
            help="Text instead of an unsure caption, with --unsure say.",
        ),
    ]
    return apply_options(options, command)
