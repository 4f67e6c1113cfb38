"""`captioner caption`: a sentence about each picture."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from captioner.cli.options import (
    EXISTING_FILE,
    FILE,
    batch_option,
    check_effect,
    choice,
    given_limits,
    given_options,
    limit_options,
    model_options,
    overwrite_option,
    picture_arguments,
    search_options,
    sidecar_options,
    wording_options,
)
from captioner.progress import ProgressBar
from captioner.writers.caption_outputs import FORMATS

if TYPE_CHECKING:
    from captioner.caption import Caption, Failure
    from captioner.images.inputs import PictureBytes
    from captioner.writers.caption_outputs import CaptionOutputs
    from captioner.writers.run_summary import RunSummary


@click.command(name="caption")
@picture_arguments(required=False)
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
@click.option(
    "--summary", "summary_file", type=FILE, metavar="FILE", help="Write the counts, and every skipped input, as JSON."
)
@click.option(
    "--retry", type=EXISTING_FILE, metavar="FILE", help="Caption only what failed, from a file of --summary; no PATH."
)
@click.option("--words", is_flag=True, help="Add log-probability, gate and entropy of each word; needs --format jsonl.")
@search_options()
@model_options
@batch_option
@limit_options
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
    summary_file: Path | None,
    retry: Path | None,
    words: bool,
    model: str,
    backend: Any,
    device: str | None,
    threads: int | None,
    batch: int,
    **search: Any,
) -> int:
    """Write a sentence about each picture.

    PATH is a picture, a folder, a pattern such as 'photos/*.jpg', or - for standard input: a picture, or a list of
    pictures, one per line. Captions come in the order of the pictures, each as soon as it is ready. A picture that
    cannot be read is named on standard error; the others are captioned, and the exit code is 1. What was skipped is
    counted at the end. Search options that are not given take the model's own values.
    """
    from captioner.captioning import Captioner
    from captioner.files.existing import check_unoccupied
    from captioner.images import inputs
    from captioner.images.reading import source_name
    from captioner.inference.search.constraints import knows
    from captioner.writers.caption_outputs import CaptionOutputs, check_output
    from captioner.writers.run_summary import RunSummary, read_failed
    from captioner.writers.sidecars import SidecarWriter
    from captioner.writers.wording import Wording

    warnings.filterwarnings("ignore", module="PIL")  # about broken EXIF and the like, which do no harm
    if bool(paths) == (retry is not None):
        raise click.UsageError("give the pictures as PATH, or a summary with --retry, which has their names")
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
    check_unoccupied(summary_file, "--summary", overwrite=overwrite, resuming=resume)
    limits = given_limits(search)
    options = given_options(search)
    if retry is not None and not (paths := tuple(read_failed(retry))):
        click.echo(f"{retry}: nothing failed, so there is nothing to retry", err=True)
        return 0
    picture_inputs = inputs.find(paths, recursive=recursive, listed=sys.stdin)
    if sidecar and any(isinstance(picture, inputs.PictureBytes) for picture in picture_inputs.pictures):
        raise click.UsageError("a picture on standard input has no sidecar; use --output")
    captioner = Captioner.load(model, backend=backend, device=device, threads=threads)
    captioner.options(**options)  # reports a wrong option before anything is written
    check_effect(options, [captioner])
    for word in options.get("forbidden", ()):
        if not knows(captioner.backend.vocabulary, word):
            click.echo(f"note: --forbid {word}: the model does not know this word and never uses it", err=True)
    for problem in picture_inputs.problems:
        click.echo(f"captioner: {problem.reason}", err=True)
    summary = RunSummary(picture_inputs.problems, picture_inputs.left_out)
    failures = len(picture_inputs.problems)

    # COCO results need all names at once; a list on standard input is otherwise captioned while it is still written.
    read_all = output_format == "coco" or picture_inputs.listed is None
    pictures: Iterable[str | PictureBytes] = list(picture_inputs) if read_all else picture_inputs
    all_names = [source_name(picture) for picture in pictures] if read_all else None
    outputs = CaptionOutputs(
        output,
        output_format,
        all_names,
        words=words,
        resume=resume,
        overwrite=overwrite,
        sidecars=sidecars,
        wording=wording,
    )
    if outputs.numbers_images:
        click.echo("note: the file names give no unique ids, so the images are numbered 1, 2, 3, ...", err=True)
    try:
        with outputs, ProgressBar("captioning") as progress:
            pictures = summary.without_finished(pictures, outputs.is_finished)
            if read_all:
                pictures = list(pictures)
                progress.total = len(pictures)
            for result in captioner.stream(pictures, batch=batch, **limits, **options):
                progress.clear()
                failures += not _write(result, outputs, summary)
                progress.advance()
            summary.is_complete = True
    except KeyboardInterrupt:
        go_on = "--resume instead of --overwrite" if overwrite else "--resume"
        hint = f"the same command with {go_on} continues" if output or sidecar else "with --output, a run can continue"
        raise click.exceptions.Abort(f"stopped after {summary.captioned:,} captions; {hint}") from None
    finally:
        if summary_file is not None:
            summary.write(summary_file)
    if (line := summary.line()) is not None:
        click.echo(line, err=True)
    return 1 if failures else 0


def _write(result: Caption | Failure, outputs: CaptionOutputs, summary: RunSummary) -> bool:
    """Write a caption and report what is wrong. Returns whether everything that was asked for was written."""
    from captioner.caption import Failure

    if isinstance(result, Failure):
        summary.add_failure(result.name, result.reason)
        click.echo(f"captioner: {result.reason}", err=True)
        return False
    assert result.picture is not None
    name = result.picture.name
    written = outputs.write(name, result)
    if written.kept is not None:
        summary.kept.append(str(written.kept))
        how = "--existing overwrite, append or prepend changes it"
        click.echo(f"note: {name}: kept the existing {written.kept}; {how}", err=True)
    if written.problem is not None:
        summary.add_failure(name, written.problem, "sidecar")
        click.echo(f"captioner: {written.problem}", err=True)
        return False
    summary.captioned += 1
    return True
