"""`captioner caption`: a sentence about each picture."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from captioner.cli.options import given_options, model_options, search_options
from captioner.progress import ProgressBar


@click.command(name="caption")
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--recursive", "-r", is_flag=True, help="Look in the folders inside a folder too.")
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(["text", "jsonl", "csv", "coco"]),
    default="text",
    show_default=True,
    help="text: a line of name, tab and caption; coco: a results file for COCO's scorers.",
)
@click.option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="A file, not standard output.")
@click.option("--sidecar", is_flag=True, help="Write photo.txt beside each photo, in place of one that is there.")
@click.option("--resume", is_flag=True, help="Leave out pictures that the output, or their sidecars, already have.")
@click.option("--words", is_flag=True, help="With jsonl: the figures of each word.")
@search_options()
@model_options
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, metavar="N", help="Pictures at a time.")
@click.option(
    "--pixel-limit",
    type=click.IntRange(1),
    default=200_000_000,
    show_default=True,
    metavar="N",
    help="Refuse larger pictures, which may be made to fill the memory.",
)
def command(
    paths: tuple[str, ...],
    recursive: bool,
    form: Any,
    output: Path | None,
    sidecar: bool,
    resume: bool,
    words: bool,
    model: str,
    backend: Any,
    device: str | None,
    threads: int | None,
    batch: int,
    pixel_limit: int,
    **search: Any,
) -> int:
    """Write a sentence about each picture.

    PATH is a picture, a folder, a pattern such as 'photos/*.jpg', or - for a list of pictures on standard
    input, one a line. Captions come in the order of the pictures, each as soon as it is ready. A picture that
    cannot be read is named on standard error; the rest are captioned, and the exit code is 1.
    """
    from captioner.captioning import Captioner, Failure
    from captioner.images import inputs
    from captioner.inference.search.constraints import knows
    from captioner.writers.caption_outputs import CaptionOutputs

    warnings.filterwarnings("ignore", module="PIL")  # about broken EXIF and the like, which do no harm
    if resume and output is None and not sidecar:
        raise click.UsageError("--resume needs --output or --sidecar, to see which pictures are finished")
    if words and form != "jsonl":
        raise click.UsageError("--words needs --format jsonl")
    options = given_options(search)
    found = inputs.find(paths, recursive=recursive, listed=sys.stdin)
    captioner = Captioner.load(model, backend=backend, device=device, threads=threads)
    captioner.options(**options)  # reports a wrong option before anything is written
    for word in options.get("forbidden", ()):
        if not knows(captioner.backend.vocabulary, word):
            click.echo(f"note: --forbid {word}: the model does not know this word and never uses it", err=True)
    for problem in found.problems:
        click.echo(f"captioner: {problem}", err=True)
    failures = len(found.problems)

    # COCO results need all names at once; a list on standard input is otherwise captioned while it is still written.
    names: Iterable[str] = list(found) if form == "coco" or found.coming is None else found
    all_names = names if isinstance(names, list) else None
    with (
        CaptionOutputs(output, form, all_names, words=words, resume=resume, sidecars=sidecar) as outputs,
        ProgressBar("captioning") as progress,
    ):
        if outputs.numbers_images:
            click.echo("note: the file names give no unique ids, so the images are numbered 1, 2, 3, ...", err=True)
        if all_names is not None:
            names = [name for name in all_names if not outputs.is_finished(name)]
            progress.total = len(names)
        else:
            names = (name for name in names if not outputs.is_finished(name))
        for result in captioner.stream(names, batch=batch, pixel_limit=pixel_limit, **options):
            progress.clear()
            if isinstance(result, Failure):
                reason: str | None = result.reason
            else:
                assert result.picture is not None
                reason = outputs.write(result.picture.name, result)
            if reason is not None:
                failures += 1
                click.echo(f"captioner: {reason}", err=True)
            progress.advance()
    return 1 if failures else 0
