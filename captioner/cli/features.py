"""`captioner features`."""

from __future__ import annotations

from pathlib import Path

import click

from captioner.cli.options import config_options, device_option


@click.command()
@config_options(required=True)
@device_option("cuda where there is one")
def command(config: Path, changes: tuple[str, ...], device: str | None) -> None:
    """Encode every image of a config's train and val splits once, into the feature cache.

    Stopped at any point, the same command goes on where it was. A config with training.start_from is encoded with the
    weights found there, which must exist by then.
    """
    from captioner.train.start import encode

    encode(config, changes, device=device)
