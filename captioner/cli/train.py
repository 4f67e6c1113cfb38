"""`captioner train`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Config file; see configs/.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a setting: --set training.epochs=3.")
@click.option("--run", "folder", type=click.Path(path_type=Path), help="Run folder.  [default: runs/NAME]")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with this run where its last checkpoint is.")
@click.option("--overwrite", is_flag=True, help="Begin anew in a run folder that exists.")
@click.option("--device", help="cpu, cuda, mps.  [default: cuda where there is one]")
def command(
    config: Path | None,
    changes: tuple[str, ...],
    folder: Path | None,
    resume: Path | None,
    overwrite: bool,
    device: str | None,
) -> None:
    """Train a captioner from a config.

    Writes config.yaml, vocabulary.json, metrics.jsonl, TensorBoard's board/, last.safetensors and best/ into
    the run folder. Features are encoded first where their cache is missing. With several processes:
    torchrun --nproc-per-node N -m -- captioner train ...
    """
    from captioner.train.start import start

    start(config, changes, folder=folder, resume=resume, overwrite=overwrite, device=device)
