"""`captioner caption`: a sentence about each picture."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from captioner.cli.options import asked, model_options, search_options
from captioner.errors import CaptionerError
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
@search_options
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
    from captioner.captioning import Captioner
    from captioner.images import inputs
    from captioner.inference.search.constraints import knows
    from captioner.writers import caption_files as outputs

    warnings.filterwarnings("ignore", module="PIL")  # on broken EXIF and the like, which do no harm
    if resume and output is None and not sidecar:
        raise click.UsageError("--resume needs --output or --sidecar, to see what is done")
    if words and form != "jsonl":
        raise click.UsageError("--words needs --format jsonl")
    options = asked(search)
    found = inputs.find(paths, recursive=recursive, listed=sys.stdin)
    captioner = Captioner.load(model, backend=backend, device=device, threads=threads)
    captioner.options(**options)  # a wrong one is told before anything is written
    for word in options.get("forbidden", ()):
        if not knows(captioner.backend.vocabulary, word):
            click.echo(f"note: the model does not know {word!r} and never says it", err=True)

    everything = list(found) if form == "coco" or found.coming is None else None
    with _told_of(output):
        writer, done = outputs.open_output(output, form, everything, words=words, resume=resume)
    if isinstance(writer, outputs.Coco) and writer.ids is None:
        click.echo("note: not every name has a number of its own, so images are numbered as they come", err=True)
    writers = [writer, outputs.Sidecars()] if sidecar else [writer]

    def wanted(name: str) -> bool:
        there = output is not None and name in done
        beside = outputs.sidecar(name)
        written = sidecar and beside.is_file() and beside != Path(name)
        return not resume or not ((there or output is None) and (written or not sidecar))

    names: Iterable[str] = filter(wanted, found)
    if everything is not None:
        names = [name for name in everything if wanted(name)]
    with _told_of(output):
        return _write(captioner, names, writers, found.problems, batch=batch, pixel_limit=pixel_limit, **options)


@contextmanager
def _told_of(output: Path | None) -> Iterator[None]:
    """A full disk is told with the file and how to go on; of standard output the reader may have left."""
    try:
        yield
    except OSError as error:
        if output is None:
            raise
        raise CaptionerError(
            f"{output}: cannot be written ({error.strerror}); --resume goes on where it stopped"
        ) from None


def _write(captioner: Any, names: Iterable[str], writers: list[Any], problems: list[str], **options: Any) -> int:
    """Caption and write; the exit code."""
    from captioner.captioning import Failure

    for problem in problems:
        click.echo(f"captioner: {problem}", err=True)
    failed = len(problems)
    progress = ProgressBar("captioning", total=len(names) if isinstance(names, list) else None)
    try:
        for result in captioner.stream(names, **options):
            reason = result.reason if isinstance(result, Failure) else None
            progress.clear()
            if not isinstance(result, Failure):
                try:
                    for writer in writers:
                        writer.write(result.picture.name, result)
                except CaptionerError as error:
                    reason = str(error)
            if reason is not None:
                failed += 1
                click.echo(f"captioner: {reason}", err=True)
            progress.advance()
    finally:
        progress.clear()
        for writer in writers:
            writer.close()
    return 1 if failed else 0
