"""`captioner train`."""

from __future__ import annotations

from pathlib import Path

import click

from captioner.cli.options import (
    FILE_OR_FOLDER,
    FOLDER,
    complete_model,
    config_options,
    device_option,
    images_option,
    overwrite_option,
)


@click.command()
@click.argument("data", required=False, type=FILE_OR_FOLDER)
@images_option()
@click.option(
    "--from",
    "start_from",
    metavar="NAME|DIR",
    shell_complete=complete_model,
    show_default="default below 5,000 captions, else scratch",
    help="Model to start from, or scratch; with DATA.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Choose the epochs, and if needed fewer pictures, to be done in this time; with DATA.",
)
@click.option("--licence", metavar="NAME", help="Licence of the weights, for the manifest; with DATA.")
@click.option(
    "--plan", "only_plan", is_flag=True, help="Print all settings and the expected time, then stop; with DATA."
)
@config_options(required=False)
@click.option(
    "--output",
    "-o",
    "--run",
    "folder",
    type=FOLDER,
    metavar="DIR",
    show_default="runs/NAME",
    help="Folder of the run.",
)
@click.option("--resume", type=FOLDER, metavar="DIR", help="Continue the run in this folder from its last checkpoint.")
@overwrite_option
@device_option("cuda if available")
def command(
    data: Path | None,
    images: Path | None,
    start_from: str | None,
    minutes: float | None,
    licence: str | None,
    only_plan: bool,
    config: Path | None,
    changes: tuple[str, ...],
    folder: Path | None,
    resume: Path | None,
    overwrite: bool,
    device: str | None,
) -> None:
    """Train a captioner on the photos and captions of DATA, or from a config.

    With DATA (a folder of photos with .txt files, a table, or another format of `captioner data check`), the settings
    are chosen by the size of the set, a tenth of the photos is kept for validation, and the result is exported as a
    bundle in the run folder.

    Images that are not in the feature cache are encoded first. The run folder gets the config, the vocabulary,
    checkpoints (last.safetensors to resume from, best/ to export), metrics.jsonl, and TensorBoard files (board/).
    Ctrl-C saves a checkpoint and stops. To use several processes: torchrun --nproc-per-node N -m -- captioner train ...
    """
    if data is None:
        given = {
            "--images": images,
            "--from": start_from,
            "--minutes": minutes,
            "--licence": licence,
            "--plan": only_plan,
        }
        for option, value in given.items():
            if value:
                raise click.UsageError(f"{option} needs DATA: captioner train PHOTOS {option} …")
        from captioner.train.start import start

        start(config, changes, folder=folder, resume=resume, overwrite=overwrite, device=device)
        return
    if config is not None or resume is not None:
        raise click.UsageError("give DATA, --config or --resume: only one of them")
    from captioner.export.trained_photos import train_photos

    train_photos(
        data,
        folder,
        images=images,
        start_from=start_from,
        minutes=minutes,
        changes=changes,
        licence=licence,
        overwrite=overwrite,
        device=device,
        only_plan=only_plan,
        say=click.echo,
    )
