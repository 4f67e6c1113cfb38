"""`captioner caption`: a sentence about each picture."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from captioner.cli.options import (
    FILE,
    batch_option,
    choice,
    given_options,
    model_options,
    overwrite_option,
    picture_arguments,
    pixel_limit_option,
    search_options,
    sidecar_options,
    wording_options,
)
from captioner.progress import ProgressBar
from captioner.writers.caption_outputs import FORMATS


@click.command(name="caption")
@picture_arguments
@click.option(
    "--format",
    "-f",
    "output_format",
    type=choice(*FORMATS),
    default="text",
    show_default=True,
    help="text: lines of name, tab and caption; jsonl, csv: with scores; coco: a results file for COCO's scorers.",
)
@click.option("--output", "-o", type=FILE, metavar="FILE", show_default="standard output", help="File to write to.")
@sidecar_options
@overwrite_option
@click.option("--resume", is_flag=True, help="Skip pictures whose captions are in --output, or in their sidecars.")
@wording_options
@click.option("--words", is_flag=True, help="Add log-probability, gate and entropy of each word; needs --format jsonl.")
@search_options()
@model_options
@batch_option
@pixel_limit_option
def command(
    paths: tuple[str, ...],
    recursive: bool,
    output_format: Any,
    output: Path | None,
    sidecar: bool,
    sidecar_extension: str,
    existing: Any,
    overwrite: bool,
    resume: bool,
    style: Any,
    prefix: str,
    suffix: str,
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

    PATH is a picture, a folder, a pattern such as 'photos/*.jpg', or - for a list of pictures on standard input, one
    per line. Captions come in the order of the pictures, each as soon as it is ready. A picture that cannot be read is
    named on standard error; the others are captioned, and the exit code is 1. Search options that are not given take
    the model's own values.
    """
    from captioner.caption import Failure
    from captioner.captioning import Captioner
    from captioner.images import inputs
    from captioner.inference.search.constraints import knows
    from captioner.writers.caption_outputs import CaptionOutputs, check_output
    from captioner.writers.sidecars import SidecarWriter
    from captioner.writers.wording import Wording

    warnings.filterwarnings("ignore", module="PIL")  # about broken EXIF and the like, which do no harm
    if resume and output is None and not sidecar:
        raise click.UsageError("--resume needs --output or --sidecar, to see which pictures are finished")
    if resume and overwrite:
        raise click.UsageError("--resume continues the output and --overwrite replaces it; give one of them")
    if existing is not None and not sidecar:
        raise click.UsageError("--existing is about sidecars; give --sidecar too, or --overwrite for --output")
    if (prefix or suffix) and output_format != "text" and not sidecar:
        raise click.UsageError("--prefix and --suffix are for --format text and for --sidecar")
    if words and output_format != "jsonl":
        raise click.UsageError("--words needs --format jsonl")
    wording = Wording(style, prefix, suffix)
    existing = existing or ("overwrite" if overwrite else "keep")
    sidecars = SidecarWriter(extension=sidecar_extension, existing=existing, wording=wording) if sidecar else None
    check_output(output, resume=resume, overwrite=overwrite)
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
    names: Iterable[str] = list(found) if output_format == "coco" or found.coming is None else found
    all_names = names if isinstance(names, list) else None
    with (
        CaptionOutputs(
            output,
            output_format,
            all_names,
            words=words,
            resume=resume,
            overwrite=overwrite,
            sidecars=sidecars,
            wording=wording,
        ) as outputs,
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
                written = outputs.write(result.picture.name, result)
                reason = written.problem
                if written.kept is not None:
                    how = "--existing overwrite, append or prepend changes it"
                    click.echo(f"note: {result.picture.name}: kept the existing {written.kept}; {how}", err=True)
            if reason is not None:
                failures += 1
                click.echo(f"captioner: {reason}", err=True)
            progress.advance()
    return 1 if failures else 0
