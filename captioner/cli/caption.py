"""`captioner caption`: a sentence about each picture."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

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
    summary_option,
)
from captioner.cli.output_options import metadata_options, sidecar_options, unsure_options, wording_options
from captioner.cli.shard_options import (
    check_shard_call,
    names_shards,
    run_on_this_machine,
    shard_options,
    shard_settings,
)
from captioner.progress import ProgressBar
from captioner.terminal import say
from captioner.writers.caption_formats import FORMATS

if TYPE_CHECKING:
    from captioner.caption import Caption, Failure
    from captioner.images.inputs import PictureBytes
    from captioner.writers.caption_outputs import CaptionOutputs, PhotoWriter, Written
    from captioner.writers.run_summary import RunSummary
    from captioner.writers.wording import Rated, Wording

NOT_WITH_FROM = {  # options that say how captions are made, or where else they are written
    "output_name": "--output",
    "output_format": "--format",
    "style": "--style",
    "resume": "--resume",
    "recursive": "--recursive",
}


@click.command(name="caption")
@picture_arguments(required=False)
@click.option(
    "--format",
    "-f",
    "output_format",
    type=choice(*FORMATS, "webdataset"),
    default="text",
    show_default=True,
    help="text: lines of name, tab and caption; jsonl, csv, parquet: with scores; coco: a results file for COCO's "
    "scorers; html: a page to review and correct the captions; webdataset: copies of tar shards, with captions.",
)
@click.option(
    "--output",
    "-o",
    "output_name",
    metavar="FILE|DIR",
    show_default="standard output",
    help="File to write to; for shards, the folder or its address.",
)
@sidecar_options
@metadata_options
@overwrite_option
@click.option(
    "--resume", is_flag=True, help="Skip pictures whose captions are in --output, their sidecars and their metadata."
)
@wording_options
@unsure_options
@summary_option
@click.option(
    "--retry", type=EXISTING_FILE, metavar="FILE", help="Caption only what failed, from a file of --summary; no PATH."
)
@click.option(
    "--from",
    "from_file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Make no captions: take them from this jsonl or csv file, and write them to their photos; no PATH.",
)
@click.option(
    "--escape-formulas",
    is_flag=True,
    help="Put ' before CSV cells that a spreadsheet would take for a formula; needs --format csv.",
)
@shard_options
@click.option("--words", is_flag=True, help="Add log-probability, gate and entropy of each word; needs --format jsonl.")
@search_options()
@model_options
@batch_option
@limit_options
def command(
    paths: tuple[str, ...],
    recursive: bool,
    output_format: Any,
    output_name: str | None,
    sidecar: bool,
    sidecar_extension: str,
    existing: Any,
    write_metadata: bool,
    xmp_sidecar: bool,
    overwrite: bool,
    resume: bool,
    style: Any,
    prefix: str,
    suffix: str,
    min_confidence: float | None,
    unsure: Any,
    unsure_text: str,
    summary_file: Path | None,
    retry: Path | None,
    from_file: Path | None,
    escape_formulas: bool,
    shard_size: int,
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

    PATH may also be a shard, a file of many pictures: .tar (webdataset) or .parquet; with a folder as --output also a
    list of paths (.txt) or a folder with a metadata.jsonl. Each shard gets its own output. One that exists is finished.
    """
    from captioner.inference.model_loading import start_loading
    from captioner.writers.wording import UNSURE_TEXT, Wording

    shard_values = {name: search.pop(name) for name in ("image_column", "key_column", "captions_in")}
    if names_shards(paths, output_name):
        check_shard_call(paths, output_name, output_format)
        assert output_name is not None  # it was checked
        limits, options = given_limits(search), given_options(search)
        shard_values |= {"model": model, "backend": backend, "device": device, "threads": threads, "batch": batch}
        settings = shard_settings(shard_values | {"options": options}, output_format, limits)
        return run_on_this_machine(
            paths, output_name, settings, shard_size=shard_size, overwrite=overwrite, summary_file=summary_file
        )
    require(output_format != "webdataset", "--format webdataset copies tar shards; give one as PATH")
    output = None if output_name is None else FILE.convert(output_name, None, click.get_current_context())
    to_photos = sidecar or write_metadata or xmp_sidecar
    given = sum((bool(paths), retry is not None, from_file is not None))
    require(given <= 1, "give only one of PATH, --retry and --from")
    require(given == 1, "give the pictures as PATH, or --retry with a summary, or --from with captions")
    require(
        not resume or output is not None or to_photos,
        "--resume needs --output, --sidecar or --write-metadata, to see what is finished",
    )
    require(not (resume and overwrite), "--resume continues the output and --overwrite replaces it; give one of them")
    require(
        existing is None or sidecar, "--existing is about sidecars; give --sidecar too, or --overwrite for --output"
    )
    require(
        not (prefix or suffix) or output_format == "text" or to_photos,
        "--prefix and --suffix are for --format text, sidecars and metadata",
    )
    require(not words or output_format == "jsonl", "--words needs --format jsonl; parquet has the words anyway")
    require(
        min_confidence is not None or (unsure is None and unsure_text == UNSURE_TEXT),
        "--unsure needs --min-confidence, which says which captions are unsure",
    )
    unsure = unsure or "mark"
    require(
        min_confidence is None or unsure != "mark" or output_format in ("text", "html"),
        "--unsure mark is for --format text and html; give --unsure skip or say",
    )
    require(
        min_confidence is None or unsure != "mark" or not to_photos,
        "--unsure mark has no place in photos and sidecars; give --unsure skip or say",
    )
    require(
        min_confidence is None or unsure != "say" or output_format != "coco" or to_photos,
        "COCO results have the model's words; give --unsure skip",
    )
    require(not escape_formulas or output_format == "csv", "--escape-formulas needs --format csv")
    if from_file is None:
        loading = start_loading(model, backend=backend, device=device, threads=threads)
    # Imported while the graphs are loaded.
    from captioner.captioning import finish_loading
    from captioner.cli.fast_hint import suggest_fast
    from captioner.files.existing import check_unoccupied, check_writable
    from captioner.images import inputs
    from captioner.images.limits import Limits
    from captioner.images.reading import source_name
    from captioner.inference.search.constraints import knows
    from captioner.writers.caption_outputs import CaptionOutputs, check_output
    from captioner.writers.photo_writers import photo_writers
    from captioner.writers.run_summary import RunSummary, read_failed

    wording = Wording(style, prefix, suffix, min_confidence, unsure, unsure_text)
    limits = given_limits(search)
    writers = photo_writers(
        sidecar_extension=sidecar_extension if sidecar else None,
        existing=existing,
        metadata=write_metadata,
        xmp_sidecar=xmp_sidecar,
        overwrite=overwrite,
        limits=Limits(limits["pixel_limit"], limits["memory_limit"], limits["seconds_per_picture"]),
    )
    check_unoccupied(summary_file, "--summary", overwrite=overwrite, resuming=resume)
    check_writable(summary_file, "--summary")
    options = given_options(search)
    if from_file is not None:
        require(to_photos, "--from needs --write-metadata, --xmp-sidecar or --sidecar: where the captions are written")
        source = click.get_current_context().get_parameter_source
        unused = [flag for name, flag in NOT_WITH_FROM.items() if source(name) is ParameterSource.COMMANDLINE]
        unused += ["options of the search"] if options else []
        require(not unused, f"--from makes no captions: leave out {', '.join(unused)}")
        return write_saved(from_file, writers, wording, summary_file)
    check_output(output, resume=resume, overwrite=overwrite)
    if retry is not None and not (paths := tuple(read_failed(retry))):
        say(f"{retry}: nothing failed, so there is nothing to retry")
        return 0
    picture_inputs = inputs.find(paths, recursive=recursive, listed=sys.stdin)
    require(
        not writers or not any(isinstance(picture, inputs.PictureBytes) for picture in picture_inputs.pictures),
        "a picture on standard input has no file to write to or beside; use --output",
    )
    captioner = finish_loading(loading)
    captioner.options(**options)  # reports a wrong option before anything is written
    check_effect(options, [captioner])
    require(
        min_confidence is None or captioner.confidence is not None,
        f"--min-confidence: the model {model!r} gives no confidence; scripts/fit_confidence adds it",
    )
    for word in options.get("forbidden", ()):
        if not knows(captioner.backend.vocabulary, word):
            say(f"note: --forbid {word}: the model does not know this word and never uses it")
    for problem in picture_inputs.problems:
        say(f"captioner: {problem.reason}")
    summary = RunSummary(picture_inputs.problems, picture_inputs.left_out)
    summary.backend = captioner.backend.name
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
        photo_writers=writers,
        wording=wording,
        escape_formulas=escape_formulas,
    )
    if outputs.numbers_images:
        say("note: the file names give no unique ids, so the images are numbered 1, 2, 3, ...")
    try:
        with outputs, ProgressBar("captioning") as progress:
            pictures = summary.without_finished(pictures, outputs.is_finished)
            if read_all:
                pictures = list(pictures)
                progress.total = len(pictures)
            for result in captioner.stream(pictures, batch=batch, **limits, **options):
                progress.clear()
                failures += not _write(result, outputs, summary, wording)
                progress.advance()
                suggest_fast(captioner, progress)
            summary.is_complete = True
    except KeyboardInterrupt:
        go_on = "--resume instead of --overwrite" if overwrite else "--resume"
        hint = f"the same command with {go_on} continues" if output or writers else "with --output, a run can continue"
        raise click.exceptions.Abort(f"stopped after {summary.captioned:,} captions; {hint}") from None
    finally:
        if summary_file is not None:
            summary.write(summary_file)
    if (line := summary.line()) is not None:
        say(line)
    if summary.doubtful:
        say(summary.doubt_line())
    return 1 if failures else 0


def require(condition: object, sentence: str) -> None:
    """Refuse a combination of options."""
    if not condition:
        raise click.UsageError(sentence)


def write_saved(file: Path, writers: Sequence[PhotoWriter], wording: Wording, summary_file: Path | None) -> int:
    """Write the captions of a file to their photos, or beside them."""
    from captioner.writers.caption_outputs import write_to_photo
    from captioner.writers.run_summary import RunSummary
    from captioner.writers.saved_captions import read_saved

    summary = RunSummary(verb="written")
    captions = read_saved(file)
    require(
        wording.min_confidence is None or any(one.confidence is not None for one in chain(*captions.values())),
        f"--min-confidence: no caption in {file} has a confidence that nobody has reviewed",
    )
    with ProgressBar("writing") as progress:
        progress.total = len(captions)
        for name, saved in captions.items():
            progress.clear()
            if not Path(name).is_file():
                summary.add_failure(name, f"{name}: no such file")
                say(f"captioner: {name}: no such file")
            elif wording.skips(saved[0]):
                add_unsure(name, saved[0], summary)
            else:
                written = write_to_photo(writers, name, [wording.complete(one, one.text) for one in saved])
                report(name, written, summary)
                summary.captioned += not written.problems and len(written.kept) < len(writers)
            progress.advance()
    summary.is_complete = True
    if summary_file is not None:
        summary.write(summary_file)
    say(summary.line() or f"{summary.captioned:,} written")
    return 1 if any(entry.group != "unsure" for entry in summary.skipped) else 0


def _write(result: Caption | Failure, outputs: CaptionOutputs, summary: RunSummary, wording: Wording) -> bool:
    """Write a caption and report what is wrong. Returns whether everything that was asked for was written."""
    from captioner.caption import Failure
    from captioner.writers.run_summary import DOUBTFUL

    if isinstance(result, Failure):
        summary.add_failure(result.name, result.reason)
        say(f"captioner: {result.reason}")
        return False
    assert result.picture is not None
    name = result.picture.name
    if wording.skips(result):
        add_unsure(name, result, summary)
        return True
    written = outputs.write(name, result)
    report(name, written, summary)
    if written.problems:
        return False
    summary.captioned += 1
    if wording.min_confidence is None and result.confidence is not None:
        summary.doubtful += result.confidence < DOUBTFUL
    return True


def add_unsure(name: str, caption: Rated, summary: RunSummary) -> None:
    """Count a photo whose caption is too unsure to be written."""
    summary.add_failure(name, f"{name}: its caption has a confidence of {caption.confidence:.2f}", "unsure")


def report(name: str, written: Written, summary: RunSummary) -> None:
    """Say what was kept and what could not be written to a photo, and count it."""
    for path, change in written.kept:
        summary.kept.append(str(path))
        what = "description" if path == Path(name).resolve() else path
        say(f"note: {name}: kept the existing {what}; {change}")
    for problem in written.problems:
        summary.add_failure(name, problem, "sidecar")
        say(f"captioner: {problem}")
