"""Options of shards, and how jobs of shards are run by `captioner caption` and `captioner scale caption`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from captioner.cli.options import F, apply_options, check_effect, choice
from captioner.terminal import say

if TYPE_CHECKING:
    from captioner.scale.job import Job
    from captioner.scale.job_summary import JobSummary
    from captioner.scale.shard_captioning import ShardCaptioner, ShardSettings

# As captioner.scale.shards has them (tests/test_work.py compares). To import it for a photo would delay its caption.
SHARD_SIZE = 2000
CAPTION_MEMBERS = ("txt", "json")
SHARD_ENDINGS = (".tar", ".parquet")

# What `captioner caption` has for pictures only.
NOT_FOR_SHARDS = (
    *("recursive", "sidecar", "sidecar_extension", "existing", "write_metadata", "xmp_sidecar", "style", "prefix"),
    *("suffix", "min_confidence", "unsure", "unsure_text", "retry", "from_file", "escape_formulas", "words", "n_best"),
)


def shard_options(command: F) -> F:
    """--shard-size, --image-column, --key-column and --captions-in. `shard_settings` collects their values."""
    options: list[Callable[[F], F]] = [
        click.option(
            "--shard-size",
            type=click.IntRange(1),
            default=SHARD_SIZE,
            show_default=True,
            metavar="N",
            help="For lists of paths: pictures per output shard.",
        ),
        click.option(
            "--image-column",
            metavar="NAME",
            show_default="recognised by name and type",
            help="For Parquet shards: the column with the bytes or paths of the pictures.",
        ),
        click.option(
            "--key-column",
            metavar="NAME",
            show_default="recognised by name, else the row's number",
            help="For Parquet shards: the column with the keys of the pictures.",
        ),
        click.option(
            "--captions-in",
            type=choice(*CAPTION_MEMBERS),
            default=CAPTION_MEMBERS[0],
            show_default=True,
            help="For --format webdataset: a file key.caption.txt beside each picture, or the picture's key.json.",
        ),
    ]
    return apply_options(options, command)


def shard_settings(values: dict[str, Any], output_format: str, limits: dict[str, Any]) -> ShardSettings:
    """The settings of a job, from the arguments of a command."""
    from captioner.images.limits import Limits
    from captioner.inference.model_loading import settled
    from captioner.scale.picture_tables import Columns
    from captioner.scale.shard_captioning import ShardSettings

    return ShardSettings(
        limits=Limits(limits["pixel_limit"], limits["memory_limit"], limits["seconds_per_picture"]),
        format=output_format,  # type: ignore[arg-type]  # the caller has checked it
        captions_in=values["captions_in"],
        columns=Columns(values["image_column"], values["key_column"]),
        # The machine that starts a job decides for all: its captions must not depend on where a shard is captioned.
        backend=settled(values["model"], values["backend"], values["device"]),
        **{name: values[name] for name in ("model", "device", "threads", "batch", "options")},
    )


def names_shards(paths: Sequence[str], output: str | None) -> bool:
    """Whether a call of `captioner caption` is about shards: a path is one, or the output is a folder."""
    if output is None and not any(ending in path.lower() for path in paths for ending in SHARD_ENDINGS):
        return False
    from captioner.scale.locations import names_folder
    from captioner.scale.shards import is_shard

    return any(map(is_shard, paths)) or (output is not None and names_folder(output))


def check_shard_call(paths: Sequence[str], output: str | None, output_format: str) -> None:
    """Refuse options of `captioner caption` that shards don't have, and photos with a folder as --output."""
    from captioner.scale.locations import inside, is_address
    from captioner.scale.shards import FORMATS, is_shard

    if output is not None and output_format not in FORMATS and not any(map(is_shard, paths)):
        what = "an address" if is_address(output) else "a folder"
        ending = {"text": "txt", "coco": "json"}.get(output_format, output_format)
        file = f"captions.{ending}" if is_address(output) else inside(output, f"captions.{ending}")
        raise click.UsageError(
            f"--output {output} is {what}. For captions of photos, give a file, such as {file}, or --sidecar instead "
            "of --output. Lists and other shards need --format parquet or webdataset."
        )
    context = click.get_current_context()
    given = [name for name in NOT_FOR_SHARDS if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    if given:
        raise click.UsageError(f"{', '.join(flags[name] for name in given)}: not for shards")
    if output is None or output_format not in FORMATS:
        raise click.UsageError("shards need --format parquet or webdataset, and a folder as --output")
    if Path(output).is_file():
        raise click.UsageError(f"--output {output} is a file; shards are written to a folder")


def run_job(
    job: Job,
    run: Callable[[ShardCaptioner, JobSummary], None],
    summary: JobSummary,
    summary_file: Path | None,
    *,
    how_to_continue: str,
) -> int:
    """Run what is left of a job, and write its summary whatever happens. Returns the exit code."""
    from captioner.files.atomic import write_atomically
    from captioner.files.existing import check_writable
    from captioner.text.json_text import to_json

    check_writable(summary_file, "--summary")
    try:
        captioner = job.load()  # refuses wrong options before any work
        check_effect(dict(job.settings.options), [captioner.captioner])
        if job.left:
            run(captioner, summary)
    except KeyboardInterrupt:
        raise click.exceptions.Abort(f"stopped; {how_to_continue}") from None
    finally:
        if summary_file is not None:
            write_atomically(summary_file, to_json(summary.record(), indent=1) + "\n")
    for line in summary.lines():
        say(line)
    return 1 if summary.failed or summary.damaged else 0


def run_on_this_machine(
    paths: Sequence[str],
    output: str,
    settings: ShardSettings,
    *,
    shard_size: int,
    overwrite: bool,
    summary_file: Path | None,
) -> int:
    """`captioner caption` for shards. An output that exists is finished, unless it is to be replaced."""
    from captioner.scale.job import caption_here, plan_job

    job = plan_job(paths, output, settings, shard_size=shard_size, overwrite=overwrite)
    return run_job(
        job,
        lambda captioner, summary: caption_here(job, captioner, summary),
        job.summary(),
        summary_file,
        how_to_continue=f"the same command{' without --overwrite' if overwrite else ''} continues",
    )
