"""`captioner data download`."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from captioner.cli.options import FOLDER, overwrite_option
from captioner.data.download.catalogue import COCO_LICENCE, FLICKR8K_LICENCE, SetName
from captioner.errors import CaptionerError, UsageError
from captioner.terminal import say

SETS = get_args(SetName)
LAVIS = "LAVIS"  # --karpathy without a value


@click.command("download", short_help="Fetch COCO, Karpathy's splits or Flickr8k.")
@click.argument("name", metavar="SET", type=click.Choice(SETS))
@click.option(
    "--output", "-o", type=FOLDER, default="data", show_default=True, metavar="DIR", help="Folder of the data sets."
)
@click.option(
    "--split", "splits", multiple=True, metavar="NAME", show_default="all", help="Fetch this split; may be repeated."
)
@click.option(
    "--max-images",
    type=click.IntRange(1),
    metavar="N",
    help="Fetch at most N pictures per split, one by one, instead of COCO's archives of 13 to 19 GB.",
)
@click.option(
    "--karpathy",
    is_flag=False,
    flag_value=LAVIS,
    multiple=True,
    metavar="[FILE|URL]",
    help="Use Karpathy's splits of COCO, as LAVIS publishes them, or from dataset_coco.json, caption_datasets.zip or "
    "lists of ids; may be repeated.",
)
@click.option(
    "--restval/--no-restval", default=True, show_default=True, help="Count Karpathy's restval split as train."
)
@click.option("--base-url", metavar="URL", help="Address of a mirror that has the same files under the same paths.")
@click.option(
    "--connections",
    type=click.IntRange(1, 32),
    default=4,
    show_default=True,
    metavar="N",
    help="Connections at once.",
)
@click.option("--no-unpack", is_flag=True, help="Leave the archives packed: training reads the pictures in them.")
@click.option("--keep", is_flag=True, help="Keep the archives after they are unpacked.")
@click.option("--ignore-checksum", is_flag=True, help="Use a file whose size or MD5 is not the published one.")
@click.option("--accept-licence", is_flag=True, help="Accept the licence of Flickr8k, which is shown without this.")
@overwrite_option
def command(
    name: str,
    output: Path,
    splits: tuple[str, ...],
    max_images: int | None,
    karpathy: tuple[str, ...],
    restval: bool,
    base_url: str | None,
    connections: int,
    no_unpack: bool,
    keep: bool,
    ignore_checksum: bool,
    accept_licence: bool,
    overwrite: bool,
) -> None:
    """Fetch the data set SET: coco2014, coco2017, karpathy (captions and splits of COCO without pictures) or flickr8k.

    An interrupted download continues where it was when the same command is given again. Sizes and checksums are
    compared with the published ones. The files are put where the shipped configs expect them. A proxy is taken from
    the variables http_proxy and https_proxy.
    """
    from captioner.data.download.coco_files import download_coco
    from captioner.data.download.download_options import DownloadOptions
    from captioner.data.download.flickr8k_files import download_flickr8k

    if set(karpathy) & set(SETS):
        raise UsageError(f"--karpathy takes a file or an address, not {karpathy[0]}: name the set before --karpathy")
    if name == "flickr8k" and (karpathy or max_images or not restval):
        raise UsageError("--karpathy, --max-images and --no-restval are for COCO; Flickr8k has its own splits")
    if not restval and (name == "coco2017" or (name == "coco2014" and not karpathy)):
        raise UsageError("--no-restval is for Karpathy's splits of coco2014: give --karpathy")
    if no_unpack and (keep or max_images):
        raise UsageError("--no-unpack keeps the archives as they are; it goes without --keep and --max-images")
    if name == "flickr8k" and not accept_licence:
        for line in FLICKR8K_LICENCE.split("\n"):
            say(line)
        raise UsageError("Flickr8k has the licence above; if you accept it, add --accept-licence")
    if name == "karpathy" and not karpathy:
        karpathy = (LAVIS,)
    options = DownloadOptions(
        splits=tuple(split.lower() for split in splits),
        max_images=max_images,
        karpathy=tuple(source for source in karpathy if source != LAVIS) if karpathy else None,
        restval=restval,
        base_url=base_url,
        connections=connections,
        keep=keep,
        unpack=not no_unpack,
        ignore_checksum=ignore_checksum,
        overwrite=overwrite,
        say=click.echo,
    )
    failures: list[str] = []
    try:
        if name == "flickr8k":
            download_flickr8k(output, options)
        else:
            year = "2017" if name == "coco2017" else "2014"
            failures = download_coco(year, output, options, pictures=name != "karpathy")
    except KeyboardInterrupt:
        raise click.Abort("stopped: the same command continues where this one was") from None
    if failures:
        for failure in failures[:5]:
            say(failure)
        raise CaptionerError(
            f"{len(failures):,} pictures could not be fetched; the same command tries them again. To train without "
            "them, give captioner train --set data.allow_missing=true"
        )
    click.echo(FLICKR8K_LICENCE if name == "flickr8k" else COCO_LICENCE)
