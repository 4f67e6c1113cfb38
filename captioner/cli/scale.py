"""`captioner scale`: captions on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from captioner.cli.options import (
    backend_options,
    batch_option,
    choice,
    given_limits,
    given_options,
    limit_options,
    model_option,
    overwrite_option,
    search_options,
    summary_option,
)
from captioner.cli.shard_options import run_job, shard_options, shard_settings
from captioner.scale.shards import FORMATS


@click.group("scale")
def command() -> None:
    """Caption shards of pictures on a Ray cluster."""


@command.command("caption", short_help="Caption shards on a Ray cluster.")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…")
@click.option("--output", "-o", required=True, metavar="DIR", help="Folder of the output shards, or its address.")
@click.option(
    "--format",
    "-f",
    "output_format",
    type=choice(*FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="parquet: a table per shard; webdataset: a copy of each tar shard, with captions.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    show_default="RAY_ADDRESS, else a cluster on this machine",
    help="Address of the Ray cluster, such as ray://host:10001, or auto inside of it.",
)
@click.option(
    "--actors",
    type=click.IntRange(1),
    metavar="N",
    show_default="as many as fit",
    help="Number of actors; each loads the model.",
)
@click.option(
    "--cpus-per-actor",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processors that an actor uses.",
)
@click.option("--resume", is_flag=True, help="Leave out the shards whose output exists.")
@overwrite_option
@click.option(
    "--price-per-cpu-hour",
    type=click.FloatRange(0),
    metavar="PRICE",
    help="Price of a processor per hour, in any currency; gives the cost per million pictures.",
)
@summary_option
@shard_options
@search_options()
@model_option()
@backend_options("quick")
@batch_option
@limit_options
def caption_command(
    inputs: tuple[str, ...],
    output: str,
    output_format: str,
    address: str | None,
    actors: int | None,
    cpus_per_actor: int,
    resume: bool,
    overwrite: bool,
    price_per_cpu_hour: float | None,
    summary_file: Path | None,
    shard_size: int,
    **values: Any,
) -> int:
    """Caption the shards INPUT on a Ray cluster, each into its own output.

    INPUT is a .tar (webdataset) or .parquet file, a list of paths (.txt), a folder with a metadata.jsonl, a folder of
    shards, or a pattern such as 's3://bucket/{00000..00999}.tar'. A picture that cannot be read is a row with an error.
    The exit code is 1 if a shard is damaged or could not be read.
    """
    from captioner.files.existing import check_unoccupied
    from captioner.scale.job import plan_job
    from captioner.scale.ray_job import RayPool, caption_on_ray

    if resume and overwrite:
        raise click.UsageError("--resume continues a job and --overwrite replaces its outputs; give one of them")
    check_unoccupied(summary_file, "--summary", overwrite=overwrite, resuming=resume)
    limits, options = given_limits(values), given_options(values)
    settings = shard_settings(values | {"options": options}, output_format, limits)
    job = plan_job(inputs, output, settings, shard_size=shard_size, overwrite=overwrite)
    if job.finished and not resume:
        raise click.UsageError(
            f"{output} has {len(job.finished):,} of {len(job.left) + len(job.finished):,} outputs: continue with "
            "--resume, replace them with --overwrite or choose another --output"
        )
    pool = RayPool(address, actors, cpus_per_actor)
    return run_job(
        job,
        lambda captioner, summary: caption_on_ray(job, captioner.origin, pool, summary),
        job.summary(price_per_cpu_hour),
        summary_file,
        how_to_continue=f"the same command with --resume{' instead of --overwrite' if overwrite else ''} continues",
    )
