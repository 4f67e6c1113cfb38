"""`captioner train`."""

from __future__ import annotations

from pathlib import Path

import click

from captioner.cli.options import FOLDER, config_options, device_option, overwrite_option


@click.command()
@config_options(required=False)
@click.option("--run", "folder", type=FOLDER, metavar="DIR", show_default="runs/NAME", help="Folder of the run.")
@click.option("--resume", type=FOLDER, metavar="DIR", help="Continue the run in this folder from its last checkpoint.")
@overwrite_option
@device_option("cuda if available")
def command(
    config: Path | None,
    changes: tuple[str, ...],
    folder: Path | None,
    resume: Path | None,
    overwrite: bool,
    device: str | None,
) -> None:
    """Train a captioner from a config.

    Images that are not in the feature cache are encoded first. The run folder gets the config, the vocabulary,
    checkpoints (last.safetensors to resume from, best/ to export), metrics.jsonl, and TensorBoard files (board/).
    Ctrl-C saves a checkpoint and stops. To use several processes: torchrun --nproc-per-node N -m -- captioner train ...
    """
    from captioner.train.start import start

    start(config, changes, folder=folder, resume=resume, overwrite=overwrite, device=device)
