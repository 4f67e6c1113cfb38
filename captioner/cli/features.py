"""`captioner features`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--config", required=True, type=click.Path(path_type=Path), help="Config file; see configs/.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting.")
@click.option("--device", help="cpu (through onnxruntime), cuda, mps.  [default: cuda where there is one]")
def command(config: Path, changes: tuple[str, ...], device: str | None) -> None:
    """Encode every image of a config's train and val splits once, into the feature cache.

    Stopped at any point, the same command goes on where it was. A config with training.start_from is encoded with the
    weights found there, which must exist by then.
    """
    from captioner.train.start import encode

    encode(config, changes, device=device)
