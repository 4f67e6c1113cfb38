"""`captioner features`."""

from __future__ import annotations

from pathlib import Path

import click

from captioner.cli.options import config_options, device_option


@click.command()
@config_options(required=True)
@device_option("cuda if available")
@click.option("--verify", is_flag=True, help="Compare every shard with its checksum, and encode nothing.")
def command(config: Path, changes: tuple[str, ...], device: str | None, verify: bool) -> None:
    """Encode the images of a config's train and val splits into the feature cache.

    Training does this too, for images that are missing in the cache. If the command is stopped, run it again: it
    continues where it stopped. With training.start_from, the images are encoded with the weights of that run or bundle.
    """
    from captioner.train.start import encode, verify_features

    if verify:
        verify_features(config, changes)
        return
    encode(config, changes, device=device)
