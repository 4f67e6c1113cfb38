"""`captioner data`: fetch, check or divide a data set, or draw a synthetic one."""

from __future__ import annotations

import time
from pathlib import Path

import click

from captioner.cli.data_download import command as download_command
from captioner.cli.options import (
    FILE,
    allow_missing_option,
    captions_format_option,
    images_option,
    json_option,
    overwrite_option,
)
from captioner.errors import CaptionerError
from captioner.files.atomic import write_atomically
from captioner.files.existing import check_unoccupied
from captioner.progress import ProgressBar
from captioner.terminal import check_standard_output
from captioner.text.json_text import to_json

SHARE = click.FloatRange(0, 1, max_open=True)


@click.group("data")
def command() -> None:
    """Fetch, check or divide a data set, or draw a synthetic one."""


command.add_command(download_command)


@command.command("check", short_help="Check captions and pictures, and estimate what training needs.")
@click.argument("captions", nargs=-1, required=True, type=click.Path(path_type=Path))
@images_option(multiple=True)
@captions_format_option
@click.option("--split", "splits", multiple=True, metavar="NAME", help="Check only this split; may be repeated.")
@click.option("--restval", is_flag=True, help="Count Karpathy's restval split as train.")
@allow_missing_option
@click.option("--decode", is_flag=True, help="Decode every picture completely, not only its header.")
@click.option(
    "--min-count",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Occurrences that a word needs to be in the vocabulary.",
)
@click.option(
    "--max-length",
    default=40,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="Most words of a caption in training; longer captions are counted.",
)
@json_option
def check_command(
    captions: tuple[Path, ...],
    images: tuple[Path, ...],
    captions_format: str | None,
    splits: tuple[str, ...],
    restval: bool,
    allow_missing: bool,
    decode: bool,
    min_count: int,
    max_length: int,
    as_json: bool,
) -> None:
    """Check the data set CAPTIONS and estimate what training on it needs.

    Reports missing and damaged pictures, duplicates, pictures shared by two splits, unknown words, and the disk and
    memory for training. CAPTIONS are files or folders: COCO captions JSON, Karpathy's dataset_*.json, Flickr8k's token
    file, CSV, TSV or JSON lines with the columns image and caption, or a folder of pictures with .txt files. Several
    are checked as one set. The exit code is 1 if training would fail.
    """
    from captioner.data import cost, summary
    from captioner.data.caption_set import combine
    from captioner.data.check import check
    from captioner.data.formats.detection import read_set

    check_standard_output()
    if len(images) not in (0, 1, len(captions)):
        raise click.UsageError(
            f"--images is given {len(images)} times for {len(captions)} CAPTIONS: give it once, or once per CAPTIONS"
        )
    folders = images * len(captions) if len(images) == 1 else images or (None,) * len(captions)
    parts = [
        read_set(path, folder, format=captions_format, restval=restval, setting="CAPTIONS", images_setting="--images")
        for path, folder in zip(captions, folders, strict=True)
    ]
    whole = parts[0] if len(parts) == 1 else combine(parts)
    with ProgressBar("checking") as progress:
        findings = check(
            whole,
            splits=splits,
            minimum_count=min_count,
            max_length=max_length,
            decode=decode,
            progress=progress.show,
        )
    decoder = cost.DecoderCost(vocabulary=findings.vocabulary_size)
    if as_json:
        content = summary.as_json(findings, allow_missing=allow_missing, decoder=decoder)
        click.echo(to_json(content, indent=1))
    else:
        click.echo(summary.as_text(findings, allow_missing=allow_missing, decoder=decoder))
    problems = findings.problems(allow_missing=allow_missing)
    if problems:
        raise CaptionerError(f"{whole.name} is not ready for training (problems: {len(problems)})")


@command.command("split", short_help="Divide a data set into train, val and test, by picture.")
@click.argument("captions", type=click.Path(path_type=Path))
@images_option()
@captions_format_option
@click.option(
    "--val", default=0.1, show_default=True, type=SHARE, metavar="SHARE", help="Share of the pictures for val."
)
@click.option(
    "--test", default=0.0, show_default=True, type=SHARE, metavar="SHARE", help="Share of the pictures for test."
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Seed of the division; the same seed gives the same splits.",
)
@click.option(
    "--output", "-o", required=True, type=FILE, metavar="FILE", help="Table to write, with image, caption and split."
)
@overwrite_option
def split_command(
    captions: Path,
    images: Path | None,
    captions_format: str | None,
    val: float,
    test: float,
    seed: int,
    output: Path,
    overwrite: bool,
) -> None:
    """Divide the pictures of CAPTIONS into splits, and write them to a CSV file.

    Pictures with the same content stay together. The file can be the captions of a config or of any command.
    """
    from captioner.data.formats.detection import read_set
    from captioner.data.split import as_table, divided

    if output.suffix.lower() != ".csv":
        raise click.UsageError(f"--output: {output} must end in .csv")
    check_unoccupied(output, "--output", overwrite=overwrite)
    whole = read_set(
        captions, images, format=captions_format, setting="CAPTIONS", images_setting="--images"
    ).captioned()
    shares = {split: share for split, share in (("val", val), ("test", test)) if share}
    present = [split for split in shares if split in whole.splits]
    if not shares or present or "train" not in whole.splits:
        reason = f"it has the splits {', '.join(whole.splits)}" if shares else "--val and --test are 0"
        raise click.UsageError(f"{captions}: there is nothing to divide: {reason}")
    result = divided(whole, shares, seed=seed)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, as_table(result, output.parent))
    counts = ", ".join(f"{len(result.split(split)):,} {split}" for split in result.splits)
    click.echo(f"{output}: {counts} images, seed {seed}")


@command.command("shapes", short_help="Draw a synthetic data set of colored shapes.")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--images",
    default=3000,
    show_default=True,
    metavar="N",
    help="Number of pictures; a tenth each is for val and for test.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Seed for the pictures; the same seed gives the same set.",
)
@click.option("--size", default=96, show_default=True, metavar="N", help="Side of a picture in pixels.")
@click.option("--objects", default=2, show_default=True, metavar="N", help="Most objects per picture, 1 to 3.")
@overwrite_option
def shapes_command(out: Path, images: int, seed: int, size: int, objects: int, overwrite: bool) -> None:
    """Draw a synthetic data set into the folder OUT: colored shapes, sentences about them, and their boxes.

    Writes images/, and captions and instances in COCO's JSON formats for train, val and test.
    """
    from captioner.data.shapes import write_shapes

    started = time.perf_counter()
    with ProgressBar("drawing", total=images) as progress:
        counts = write_shapes(
            out,
            images,
            seed=seed,
            size=size,
            most=objects,
            overwrite=overwrite,
            progress=progress.show,
        )
    listed = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    click.echo(f"{out}: {listed} images in {time.perf_counter() - started:.1f} s, seed {seed}")
